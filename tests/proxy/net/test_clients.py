"""Clients set up by environment alone, Java among them, record through the proxy; direct hosts go past it."""

import errno
import gzip
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.net.client_env import (
    CA_VARIABLES,
    NODE_SCRIPT,
    add_no_proxy,
    client_environment,
    direct_hosts,
    run_command,
)
from stillweb.proxy.record.recorder import Recorder, record_command
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.writer import Writer
from tests.proxy.net.test_certificates import read_store
from tests.proxy.origin import Answer, Asked, Origin
from tests.proxy.recordings import recorded
from tests.support.waiting import STARTS

PAGE = b"<p>" + b"0123456789" * 1000
PACKED = gzip.compress(PAGE, mtime=1)


def answer(asked: Asked) -> Answer:
    if asked.path.endswith("/info/refs?service=git-upload-pack"):
        # a dumb-protocol repository with nothing in it, which Git can list
        return Answer(headers=[("Content-Type", "text/plain")], body=b"")
    if asked.method == "POST":
        return Answer(headers=[("Content-Type", "text/plain")], body=b"got " + asked.body)
    if "gzip" in (asked.header("Accept-Encoding") or ""):
        return Answer(headers=[("Content-Type", "text/html"), ("Content-Encoding", "gzip")], body=PACKED)
    return Answer(headers=[("Content-Type", "text/html")], body=PAGE)


@dataclass
class Setting:
    recorder: Recorder
    writer: Writer
    path: Path

    def run(self, *command: str, session: str = "default") -> str:
        base = {"PATH": os.environ["PATH"], "HOME": str(self.path)}
        done = subprocess.run(
            command,
            env=self.recorder.environment(session, base),
            capture_output=True,
            text=True,
            timeout=STARTS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert self.recorder.wait_quiet(session, seconds=0.05)
        return done.stdout


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    ca = Authority.load_or_create(tmp_path / "origin-ca")
    context = ca.context_for("demo.example", ("h2", "http/1.1"))
    with (
        Origin(answer) as plain,
        Origin(answer, context) as secure,
        Writer.open(tmp_path / "snapshot") as writer,
    ):
        places = {"plain.example": ("127.0.0.1", plain.port), "demo.example": ("127.0.0.1", secure.port)}
        ours = Authority.load_or_create(tmp_path / "state with space")
        with Recorder(writer, authority=ours, upstream_ca=ca.certificate_path, resolve=places) as recorder:
            yield Setting(recorder, writer, tmp_path)


PYTHON = {
    "urllib": "import urllib.request as u, sys\nfor a in sys.argv[1:]: print(len(u.urlopen(a).read()))",
    "requests": "import requests, sys\nfor a in sys.argv[1:]: print(len(requests.get(a).content))",
    "httpx": "import httpx, sys\nfor a in sys.argv[1:]: print(len(httpx.get(a).content))",
    "httpx-h2": "import httpx, sys\nc = httpx.Client(http2=True)\nfor a in sys.argv[1:]: print(len(c.get(a).content))",
}
NODE = {
    "fetch": "for (const a of urls) console.log((await (await fetch(a)).arrayBuffer()).byteLength);",
    "core": (
        "for (const a of urls) await new Promise((done, fail) => import(a.startsWith('https') ? 'https' : 'http')"
        ".then(m => m.default.get(a, r => { let n = 0; r.on('data', d => n += d.length);"
        " r.on('end', () => { console.log(n); done(); }); }).on('error', fail)));"
    ),
    "agents of its own": (
        "for (const a of urls) { const m = (await import(a.split(':')[0])).default, agent = new m.Agent({ keepAlive: true });"
        " await new Promise((done, fail) => m.get(a, { agent }, r => { let n = 0; r.on('data', d => n += d.length);"
        " r.on('end', () => { console.log(n); done(); }); }).on('error', fail)); agent.destroy(); }"
    ),
    # as the library `ws` does it
    "connections of its own": (
        "const open = o => (o.servername ??= o.host, o.path = undefined, require(o.tls ? 'tls' : 'net').connect(o));"
        "for (const a of urls) await new Promise((done, fail) => { const secure = a.startsWith('https');"
        " const port = secure ? 443 : 80, more = { createConnection: open, tls: secure, port, defaultPort: port };"
        " require(a.split(':')[0]).get(a, more, r => { let n = 0;"
        " r.on('data', d => n += d.length); r.on('end', () => { console.log(n); done(); }); }).on('error', fail); });"
    ),
}
NODE_H2 = """
const session = require('node:http2').connect('https://demo.example');
session.on('error', (error) => console.log(error.message));
const stream = session.request({ ':path': '/a' });
let size = 0;
stream.on('data', (piece) => size += piece.length).on('end', () => { console.log(size); session.close(); }).end();
"""
URLS = ("https://demo.example/a", "http://plain.example/b")


@pytest.mark.skipif(shutil.which("wget") is None, reason="no wget")
def test_wget(setting: Setting) -> None:
    """Built with GnuTLS (Debian, Ubuntu) it reads no variable that names an authority."""
    for url in URLS:
        assert setting.run("wget", "-q", "-O", "-", url) == PAGE.decode()
    assert [capture.url for capture in setting.recorder.captures_of()] == list(URLS)
    (setting.path / ".wgetrc").write_text("tries = 1\n")  # the user's own settings stay
    assert "WGETRC" not in setting.recorder.environment(base={"HOME": str(setting.path)})
    kept = setting.recorder.environment(base={"WGETRC": "mine"})
    assert kept["WGETRC"] == "mine"


def test_settings_of_php_stand_beside_those_that_there_are(setting: Setting) -> None:
    """An empty name is the directory that PHP was built with."""
    (ours,) = setting.recorder.ca_path.parent.glob("*.php")
    assert setting.recorder.environment(base={})["PHP_INI_SCAN_DIR"] == f":{ours}"
    mine = {"PHP_INI_SCAN_DIR": "/etc/mine"}
    twice = setting.recorder.environment(base=setting.recorder.environment(base=mine))
    assert twice["PHP_INI_SCAN_DIR"] == f"/etc/mine:{ours}"


NAMELESS = """
import os, sys, urllib.request as u
at = "http://" + os.environ["HTTPS_PROXY"].rpartition("@")[2]
opener = u.build_opener(u.ProxyHandler({"http": at, "https": at}))
for a in sys.argv[1:]: print(len(opener.open(a).read()))
"""


def test_a_client_that_gives_no_name_is_of_its_programs_session(setting: Setting) -> None:
    command = [sys.executable, "-c", NAMELESS, *URLS]
    assert record_command(command, setting.recorder, "north") == 0
    assert [capture.url for capture in setting.recorder.captures_of("north")] == list(URLS)


@pytest.mark.parametrize("name", sorted(PYTHON))
def test_python(setting: Setting, name: str) -> None:
    assert (
        setting.run(sys.executable, "-c", PYTHON[name], *URLS, session="py").split() == [str(len(PAGE))] * 2
    )
    protocols = [c.protocol for c in setting.recorder.captures_of("py")]
    assert protocols == ["h2" if name == "httpx-h2" else "http/1.1", "http/1.1"]
    for one in recorded(setting.path / "snapshot"):
        assert one.kind == "revisit" or one.body == (PAGE if name == "urllib" else PACKED)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_curl(setting: Setting) -> None:
    out = setting.run("curl", "-sS", "--compressed", "-w", "%{http_version} ", "-o", "/dev/null", URLS[0])
    assert out.split() == ["2"]
    assert setting.run("curl", "-sS", "-d", "x=1", URLS[1]) == "got x=1"
    first, second = recorded(setting.path / "snapshot")
    assert (first.body, first.warc["WARC-Protocol"]) == (PACKED, "h2")
    assert (second.request_body, second.body) == (b"x=1", b"got x=1")


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
@pytest.mark.parametrize("name", sorted(NODE))
def test_node(setting: Setting, name: str) -> None:
    program = f"const urls = process.argv.slice(1); (async () => {{ {NODE[name]} }})()"
    size = len(PAGE)
    assert setting.run("node", "-e", program, "--", *URLS, session="node ü").split() == [str(size)] * 2
    assert [c.url for c in setting.recorder.captures_of("node ü")] == list(URLS)
    assert recorded(setting.path / "snapshot")[0].body == (PACKED if name == "fetch" else PAGE)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
def test_node_speaks_http2_of_its_own(setting: Setting) -> None:
    assert setting.run("node", "-e", NODE_H2) == f"{len(PAGE)}\n"
    (one,) = setting.recorder.captures_of()
    assert (one.protocol, one.status) == ("h2", 200)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
@pytest.mark.parametrize("module", ["net", "tls"])
def test_what_is_no_http_in_node_is_left_as_it_is(module: str) -> None:
    """A database, say: nothing that is asked of it is the web's."""
    program = """
    const [module, port] = process.argv.slice(1);
    const socket = require(module).connect({ host: '127.0.0.1', port: Number(port) });
    socket.on('error', () => 0);
    if (module === 'net') socket.write('SELECT');
    """
    with socket.create_server(("127.0.0.1", 0)) as database, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # a proxy that does not listen
        environment = client_environment(
            f"http://127.0.0.1:{nobody.getsockname()[1]}", "/dev/null", dict(os.environ)
        )
        words = ["node", "-e", program, "--", module, str(database.getsockname()[1])]
        with subprocess.Popen(words, env=environment) as node:
            database.settimeout(STARTS)
            connection, _ = database.accept()
            with connection:
                first = connection.recv(6)
            node.wait(STARTS)
    assert first == b"SELECT" if module == "net" else first[:1] == b"\x16"  # a client's first message of TLS


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
@pytest.mark.parametrize("way", ["a page", "a tunnel"])
def test_a_library_in_node_that_asks_the_proxy_itself(setting: Setting, way: str) -> None:
    """axios and https-proxy-agent do so: they went through the proxy to the proxy, which was refused."""
    program = """
    const [way] = process.argv.slice(1), at = new URL(process.env.HTTP_PROXY);
    const user = `${decodeURIComponent(at.username)}:${at.password}`;
    const headers = { 'Proxy-Authorization': `Basic ${Buffer.from(user).toString('base64')}` };
    const place = { host: at.hostname, port: at.port };
    const options = way === 'a page' ? { path: 'http://plain.example/b', headers: { Host: 'plain.example', ...headers } }
      : { method: 'CONNECT', path: 'demo.example:443', headers };
    const request = require('node:http').request({ ...place, ...options });
    request.on('response', (answer) => answer.on('data', () => 0).on('end', () => console.log(answer.statusCode)));
    request.on('connect', (answer, socket) => { console.log(answer.statusCode); socket.destroy(); });
    request.on('error', (error) => console.log(error.message));
    request.end();
    """
    assert setting.run("node", "-e", program, "--", way) == "200\n"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
def test_node_reports_failures_and_ends(setting: Setting) -> None:
    program = "fetch('https://no-such-name.invalid/').then(() => process.exit(1), e => console.log(String(e.cause)))"
    assert "502" in setting.run("node", "-e", program)
    posted = (
        "fetch('https://demo.example/p', {method: 'POST', body: 'abc'}).then(r => r.text()).then(console.log)"
    )
    assert setting.run("node", "-e", posted) == "got abc\n"


class Round(BaseHTTPRequestHandler):
    """Answers what comes to it without a proxy."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"round")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
@pytest.mark.parametrize("named", ["127.0.0.1", "other.test, 127.0.0.1:{port}", "*"])
def test_node_goes_round_the_proxy_to_what_no_proxy_names(named: str) -> None:
    """The server of a run's tools is such a place: Node asked the snapshot for it."""
    program = """
    const http = require('node:http');
    const [around, through] = process.argv.slice(1);
    (async () => {
      const got = await new Promise((done) => http.get(around, (answer) => answer.on('data', (data) => done(String(data)))));
      const fetched = await (await fetch(around)).text();
      const refused = through && await fetch(through).catch((error) => error.cause.code);
      console.log([got, fetched, refused].join(' '));
      process.exit(0);
    })();
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), Round) as server, socket.socket() as nobody:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        nobody.bind(("127.0.0.1", 0))  # a proxy that does not listen
        port = server.server_address[1]
        environment = client_environment(
            f"http://127.0.0.1:{nobody.getsockname()[1]}", "/dev/null", dict(os.environ)
        )
        environment |= dict.fromkeys(("NO_PROXY", "no_proxy"), named.format(port=port))
        words = [
            "node",
            "-e",
            program,
            "--",
            f"http://127.0.0.1:{port}/",
            *(["http://a.test/"] if named != "*" else []),
        ]
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=STARTS, check=False
        )
        server.shutdown()
    assert done.stdout.split() == ["round", "round", *(["ECONNREFUSED"] if named != "*" else [])], done.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
def test_what_a_library_in_node_opens_itself_on_this_machine_is_left_as_it_is() -> None:
    """As Puppeteer talks to the browser that it drives; what is asked with the usual agents goes through the proxy."""
    program = """
    const http = require('node:http'), net = require('node:net'), { port } = new URL(process.argv[1]);
    const ways = [
      { createConnection: (options) => net.connect({ ...options, path: undefined }) },
      { agent: new http.Agent() }, {}, { agent: false },
    ];
    (async () => {
      for (const way of ways) await new Promise((done) => {
        http.get({ host: '127.0.0.1', port, headers: { A: 'b' }, ...way }, (answer) => answer.on('data', (data) => done(console.log(String(data)))))
          .on('error', (error) => done(console.log(error.code)));
      });
      process.exit(0);
    })();
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), Round) as server, socket.socket() as nobody:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        nobody.bind(("127.0.0.1", 0))  # a proxy that does not listen
        environment = client_environment(
            f"http://127.0.0.1:{nobody.getsockname()[1]}", "/dev/null", dict(os.environ)
        )
        words = ["node", "-e", program, "--", f"http://127.0.0.1:{server.server_address[1]}/"]
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=STARTS, check=False
        )
        server.shutdown()
    assert done.stdout.split() == ["round", "round", "ECONNREFUSED", "ECONNREFUSED"], done.stderr


@pytest.mark.skipif(shutil.which("perl") is None, reason="no Perl")
def test_perl(setting: Setting) -> None:
    fetch = "print length(LWP::UserAgent->new(env_proxy => 1)->get($_)->content), qq(\\n) for @ARGV"
    words = ["perl", "-MLWP::UserAgent", "-MLWP::Protocol::https"]
    if subprocess.run([*words, "-e", "1"], capture_output=True, check=False).returncode != 0:
        pytest.skip("Perl has no LWP for https")
    assert setting.run(*words, "-e", fetch, *URLS).split() == [str(len(PAGE))] * 2


@pytest.mark.skipif(shutil.which("git") is None, reason="no Git")
def test_git(setting: Setting) -> None:
    setting.run("git", "ls-remote", "https://demo.example/repository.git")
    assert setting.recorder.captures_of()[0].url.startswith("https://demo.example/repository.git/info/refs")


def test_the_environment_is_complete_and_nothing_goes_round() -> None:
    base = {
        "PATH": "/bin", "NO_PROXY": "localhost", "no_proxy": "*", "HTTPS_PROXY": "http://corporate:3128",
        "SSL_CERT_DIR": "/etc/ssl/certs", "NODE_TLS_REJECT_UNAUTHORIZED": "0", "NODE_OPTIONS": "--max-old-space-size=99",
    }  # fmt: skip
    made = client_environment("http://s:x@127.0.0.1:1", "/ca.pem", base)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        assert made[name] == made[name.lower()] == "http://s:x@127.0.0.1:1"
    assert made["NO_PROXY"] == made["no_proxy"] == ""
    assert {made[name] for name in CA_VARIABLES} == {"/ca.pem"}
    assert {
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "NODE_EXTRA_CA_CERTS",
        "DENO_CERT",
        "npm_config_cafile",
    } <= set(CA_VARIABLES)
    assert not {"SSL_CERT_DIR", "NODE_TLS_REJECT_UNAUTHORIZED"} & set(made)
    assert {"DENO_NO_UPDATE_CHECK", "PIP_DISABLE_PIP_VERSION_CHECK", "npm_config_update_notifier"} <= set(
        made
    )
    assert made["NODE_USE_ENV_PROXY"] == "1"
    assert made["NODE_OPTIONS"] == f'--max-old-space-size=99 --require "{NODE_SCRIPT}"'
    assert client_environment("http://s:x@127.0.0.1:1", "/ca.pem", made) == made
    assert made["PATH"] == "/bin"
    assert base["NO_PROXY"] == "localhost"


def test_exit_codes() -> None:
    assert run_command([sys.executable, "-c", "raise SystemExit(3)"], os.environ) == 3
    assert run_command([sys.executable, "-c", "import os; os.abort()"], os.environ) == 134
    with pytest.raises(UsageError, match="can't be run"):
        run_command(["/no/such/program"], {})


def test_a_command_that_the_machine_has_no_room_for_is_no_wrong_usage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(subprocess, "Popen", full)
    with pytest.raises(MissingCapability, match=r"curl: can't be run \(Too many open files\)"):
        run_command(["curl"], {})


LATE = """
import os, signal, subprocess, sys
from stillweb.proxy.net import client_env

def end(number, frame):
    raise SystemExit(143)

class Told(subprocess.Popen):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        print(self.pid, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)  # as if it came while the command was being started

signal.signal(signal.SIGTERM, end)
subprocess.Popen = Told
client_env.run_command([sys.executable, "-c", "import time; time.sleep(600)"], os.environ)
"""


def test_a_command_ends_with_us_even_while_it_is_started(tmp_path: Path) -> None:
    with (tmp_path / "said").open("wb") as said:  # no pipe: what is left behind would hold it
        done = subprocess.run([sys.executable, "-c", LATE], stdout=said, timeout=STARTS, check=False)
    assert done.returncode == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "said").read_text()), 0)


def test_an_interrupted_command_keeps_its_exit_code() -> None:
    """The signal comes while the command ends of it: neither is lost, however the two fall together."""
    program = (
        "import os\n"
        "from stillweb.proxy.net.client_env import run_command\n"
        "command = ['sh', '-c', 'kill -INT $PPID; kill -INT $$']\n"
        "print({run_command(command, os.environ) for _ in range(100)})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=STARTS)
    assert (done.returncode, done.stdout) == (0, "{130}\n"), done.stderr


PROXY = "http://north:x@127.0.0.1:8080"


def properties(environment: dict[str, str]) -> dict[str, str]:
    """As Java reads them: it splits and unquotes as a shell does, and the last of a name counts."""
    words = shlex.split(environment["JAVA_TOOL_OPTIONS"])
    return dict(word[2:].split("=", 1) for word in words if word.startswith("-D"))


@pytest.mark.parametrize("folder", ["state", "a state", 'a "state"', "it's"])
def test_proxy_and_trust_store(tmp_path: Path, folder: str) -> None:
    ours = Authority.load_or_create(tmp_path / folder)
    environment = client_environment(PROXY, ours.certificate_path, {})
    told = properties(environment)
    store = Path(told.pop("javax.net.ssl.trustStore"))
    assert len(read_store(store.read_bytes(), told["javax.net.ssl.trustStorePassword"])) == 1
    assert told == {
        "http.proxyHost": "127.0.0.1",
        "http.proxyPort": "8080",
        "https.proxyHost": "127.0.0.1",
        "https.proxyPort": "8080",
        "http.nonProxyHosts": "",  # not even localhost goes past, as it would without
        "javax.net.ssl.trustStoreType": "JKS",
        "javax.net.ssl.trustStorePassword": "changeit",
    }


def test_what_the_user_has_set_besides_stays(tmp_path: Path) -> None:
    ours = Authority.load_or_create(tmp_path)
    present = (
        '-Xmx1g -Dhttps.proxyHost=corporate -Dhttp.nonProxyHosts="localhost|*.corporate" '
        "-Djavax.net.ssl.trustStorePassword=secret -Dname='a b' -ea"
    )
    environment = client_environment(PROXY, ours.certificate_path, {"JAVA_TOOL_OPTIONS": present})
    assert environment["JAVA_TOOL_OPTIONS"].startswith("-Xmx1g -Dname='a b' -ea -D")
    told = properties(environment)
    assert (told["https.proxyHost"], told["http.nonProxyHosts"]) == ("127.0.0.1", "")
    assert told["javax.net.ssl.trustStorePassword"] == "changeit"
    assert client_environment(PROXY, ours.certificate_path, environment) == environment
    other = properties(client_environment("http://127.0.0.1:9", ours.certificate_path, environment))
    assert (other["http.proxyPort"], other["name"]) == ("9", "a b")


def test_hosts_that_are_asked_directly(tmp_path: Path) -> None:
    ours = Authority.load_or_create(tmp_path)
    through = client_environment(PROXY, ours.certificate_path, {})
    past = add_no_proxy(through, ["api.openai.com", "127.0.0.1:11434", "[::1]:80"])
    told = properties(past)
    assert told["http.nonProxyHosts"] == "api.openai.com|127.0.0.1|[::1]"
    found = read_store(Path(told["javax.net.ssl.trustStore"]).read_bytes(), "changeit")
    assert len(found) > 50  # the usual ones
    assert len(re.findall("trustStore=", past["JAVA_TOOL_OPTIONS"])) == 1


CLIENTS = {
    "urllib": "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())",
    "httpx": "import sys, httpx; print(httpx.get(sys.argv[1]).text)",
    "requests": "import sys, requests; print(requests.get(sys.argv[1]).text)",
}


def live(asked: Asked) -> Answer:
    return Answer(body=b"live")


@pytest.mark.parametrize("value", ["", "a b", "https://api.openai.com", "a,b", "a/b", "*", "-o\n"])
def test_what_is_no_host_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="is not a host"):
        direct_hosts(["api.openai.com", value])


def test_hosts_are_sorted_and_said_once() -> None:
    told = ("api.openai.com", "127.0.0.1:11434", "API.openai.com", "[::1]:8080")
    assert direct_hosts(told) == ("127.0.0.1:11434", "[::1]:8080", "api.openai.com")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CLIENTS, "curl"])
def test_a_direct_host_answers_under_its_own_certificate(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, company = (Authority.load_or_create(tmp_path / folder) for folder in ("ours", "company"))
    monkeypatch.setenv("SSL_CERT_FILE", str(company.certificate_path))  # as a company has it set
    dead = "http://127.0.0.1:9"  # where no proxy answers
    base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = ["curl", "-sS"] if name == "curl" else [sys.executable, "-c", CLIENTS[name]]
    with Origin(live, company.context_for("127.0.0.1")) as origin:
        url = f"https://127.0.0.1:{origin.port}/"

        def asked(*hosts: str) -> subprocess.CompletedProcess[str]:
            environment = add_no_proxy(client_environment(dead, ours.certificate_path, base), hosts)
            return subprocess.run(
                [*command, url], env=environment, capture_output=True, text=True, timeout=STARTS, check=False
            )

        through = asked()
        assert through.returncode != 0
        assert origin.asked == []
        past = asked("127.0.0.1")
        assert (past.returncode, past.stdout.strip()) == (0, "live"), past.stderr


def test_only_what_was_named_is_past(tmp_path: Path) -> None:
    ours = Authority.load_or_create(tmp_path)
    before = client_environment("http://127.0.0.1:9", ours.certificate_path, {"HOME": str(tmp_path)})
    after = add_no_proxy(before, ["api.openai.com", "127.0.0.1:11434"])
    assert after["NO_PROXY"] == after["no_proxy"] == "api.openai.com,127.0.0.1:11434"
    ours_alone = {n for n, v in before.items() if "stillweb-ca." in v}
    assert {*CA_VARIABLES, "WGETRC", "PHP_INI_SCAN_DIR", "JAVA_TOOL_OPTIONS"} == ours_alone
    changed = {*ours_alone, "NO_PROXY", "no_proxy"}
    assert {n: v for n, v in after.items() if n not in changed} == {
        n: v for n, v in before.items() if n not in changed
    }
    for name in ours_alone:
        assert "stillweb-ca-and-usual-" in after[name]
        assert "stillweb-ca." not in after[name]
    assert ours.certificate_path.read_bytes().strip() in Path(after["SSL_CERT_FILE"]).read_bytes()
    assert add_no_proxy(before, []) == before
    assert add_no_proxy({"PATH": "/bin"}, ["api.openai.com"]) == {"PATH": "/bin"}
    kept = {**before, "NO_PROXY": "127.7.7.7", "no_proxy": "127.7.7.7"}
    assert add_no_proxy(kept, ["api.openai.com"])["NO_PROXY"] == "127.7.7.7,api.openai.com"
