"""An internet on one machine: a network namespace in which every address answers here, and a tap that sees all packets.

python -m tests.proxy.small_internet watch -- COMMAND…     print what COMMAND sent, as JSON
python -m tests.proxy.small_internet plain                 try every way out in a browser as it comes
python -m tests.proxy.small_internet ours|record [SWITCH…]    the same in our browser, less the arguments with SWITCH
"""

import asyncio
import http.server
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stillweb.proxy.net.isolation import can_isolate
from tests.support.waiting import HANG, STARTS

Packet = tuple[str, str, int]  # protocol, address (of DNS: the name asked for), port

# way out -> the packet that shows it was taken
WAYS: dict[str, Packet] = {
    "picture": ("tcp", "198.51.100.5", 80),
    "picture by name": ("dns", "image.example", 53),
    "frame": ("tcp", "198.51.100.6", 80),
    "video": ("tcp", "198.51.100.7", 80),
    "ping": ("tcp", "198.51.100.8", 80),
    "fetch": ("tcp", "198.51.100.9", 80),
    "fetch by IPv6": ("tcp", "2001:db8::9", 80),
    "beacon": ("tcp", "198.51.100.10", 80),
    "web socket": ("tcp", "198.51.100.11", 80),
    "event stream": ("tcp", "198.51.100.12", 80),
    "worker": ("tcp", "198.51.100.14", 80),
    "preconnect": ("tcp", "198.51.100.1", 8001),
    "preconnect by name": ("dns", "preconnect.example", 53),
    "dns-prefetch": ("dns", "prefetch.example", 53),
    "prefetch": ("tcp", "198.51.100.2", 80),
    "preload": ("tcp", "198.51.100.3", 80),
    "WebTransport (QUIC)": ("udp", "198.51.100.13", 443),
    "WebTransport by name": ("dns", "transport.example", 53),
    "STUN": ("udp", "198.51.100.15", 3478),
    "STUN by name": ("dns", "stun.example", 53),
    "TURN by UDP": ("udp", "198.51.100.16", 3478),
    "TURN by TCP": ("tcp", "198.51.100.17", 3478),
    "TURN by TLS": ("tcp", "198.51.100.18", 5349),
    "TURN by name": ("dns", "turn.example", 53),
    "data channel by UDP": ("udp", "198.51.100.20", 4020),
    "data channel by TCP": ("tcp", "198.51.100.21", 4021),
    "data channel by IPv6": ("udp", "2001:db8::20", 4023),
    "data channel to loopback": ("udp", "127.0.0.1", 4024),
    "data channel by name": ("dns", "peer.example", 53),
    "multicast DNS": ("udp", "224.0.0.251", 5353),
    "style sheet": ("tcp", "198.51.100.21", 80),
    "style import": ("tcp", "198.51.100.22", 80),
    "font": ("tcp", "198.51.100.23", 80),
    "module": ("tcp", "198.51.100.26", 80),
    "module preload": ("tcp", "198.51.100.27", 80),
    "speculated page": ("tcp", "198.51.100.28", 443),
    "prerendered page": ("tcp", "198.51.100.29", 80),
    "policy report": ("tcp", "198.51.100.30", 80),
    "service worker": ("tcp", "198.51.100.33", 80),
    "PDF": ("tcp", "198.51.100.35", 80),
    "object": ("tcp", "198.51.100.36", 80),
    "text track": ("tcp", "198.51.100.37", 80),
    "background": ("tcp", "198.51.100.41", 80),
    "preconnect by a field": ("tcp", "198.51.100.43", 8043),
    "late fetch": ("tcp", "198.51.100.45", 443),
    "shared worker": ("tcp", "198.51.100.46", 80),
    "opaque frame": ("tcp", "198.51.100.49", 80),
    "form": ("tcp", "198.51.100.50", 80),
    "worklet": ("tcp", "198.51.100.54", 80),
    "identity provider": ("tcp", "198.51.100.56", 443),
    "payment": ("tcp", "198.51.100.57", 443),
    "web socket stream": ("tcp", "198.51.100.61", 80),
    "screens of the neighbours": ("udp", "239.255.255.250", 1900),
    "the browser's own": ("dns", "update.googleapis.com", 53),
}

PAGE = """<!doctype html><meta charset="utf-8"><title>Ways out</title>
<link rel="preconnect" href="http://198.51.100.1:8001"><link rel="preconnect" href="https://preconnect.example">
<link rel="dns-prefetch" href="//prefetch.example"><link rel="prefetch" href="http://198.51.100.2/">
<link rel="preload" as="image" href="http://198.51.100.3/">
<img src="http://198.51.100.5/"><img src="http://image.example/"><iframe src="http://198.51.100.6/"></iframe>
<video src="http://198.51.100.7/v.mp4" preload="auto"></video><a id="ping" href="#here" ping="http://198.51.100.8/">a</a>
<link rel="stylesheet" href="http://198.51.100.21/"><link rel="modulepreload" href="http://198.51.100.27/">
<style>@import "http://198.51.100.22/"; @font-face { font-family: f; src: url("http://198.51.100.23/") }
body { font-family: f; background: url("http://198.51.100.41/") }</style>x
<script type="module" src="http://198.51.100.26/"></script>
<script type="speculationrules">{"prefetch": [{"urls": ["https://198.51.100.28/"], "eagerness": "immediate"}]}</script>
<script type="speculationrules">{"prerender": [{"urls": ["/prerendered"], "eagerness": "immediate"}]}</script>
<embed src="http://198.51.100.35/a.pdf" type="application/pdf"><object data="http://198.51.100.36/"></object>
<video src="data:video/mp4,x" crossorigin="anonymous"><track default src="http://198.51.100.37/"></video>
<iframe sandbox="allow-scripts allow-forms" srcdoc="<img src='http://198.51.100.49/'><form action='http://198.51.100.50/'></form><script>document.forms[0].submit()</script>"></iframe>
<script>
window.failed = [];
function attempt(action) {
  try { Promise.resolve(action()).catch(() => {}) } catch (error) { failed.push(String(error)) }
}
attempt(() => document.getElementById("ping").click());
attempt(() => fetch("http://198.51.100.9/", {mode: "no-cors"}));
attempt(() => fetch("http://[2001:db8::9]/", {mode: "no-cors"}));
attempt(() => navigator.sendBeacon("http://198.51.100.10/", "x"));
attempt(() => { new WebSocket("ws://198.51.100.11/") });
attempt(() => { new EventSource("http://198.51.100.12/") });
attempt(() => { new Worker(URL.createObjectURL(new Blob(["fetch('http://198.51.100.14/', {mode: 'no-cors'})"]))) });
for (const host of ["198.51.100.13", "transport.example"]) attempt(() => new WebTransport(`https://${host}/`).ready);
attempt(() => navigator.serviceWorker.register("/worker.js"));
attempt(() => fetchLater("https://198.51.100.45/", {activateAfter: 0}));
attempt(() => { new SharedWorker("/shared.js") });
attempt(() => CSS.paintWorklet.addModule("http://198.51.100.54/"));
attempt(() => navigator.credentials.get({identity: {providers: [{configURL: "https://198.51.100.56/", clientId: "x"}]}}));
attempt(() => new PaymentRequest([{supportedMethods: "https://198.51.100.57/"}], {total: {label: "x", amount: {currency: "EUR", value: "1"}}}).canMakePayment());
attempt(() => new WebSocketStream("ws://198.51.100.61/").opened);
attempt(() => new PresentationRequest(["https://a.example/"]).getAvailability());
attempt(() => document.createElement("video").remote.watchAvailability(() => {}));
const peers = ["udp 9 198.51.100.20 4020 typ host", "tcp 9 198.51.100.21 4021 typ host tcptype passive",
  "udp 9 2001:db8::20 4023 typ host", "udp 9 127.0.0.1 4024 typ host", "udp 9 peer.example 4025 typ host",
  "udp 9 8a1bf7a3-0000-4000-8000-000000000001.local 4026 typ host"];
attempt(async () => {
  const servers = [{urls: ["stun:198.51.100.15:3478", "stun:stun.example:3478"]}, {username: "u", credential: "p", urls: [
    "turn:198.51.100.16:3478?transport=udp", "turn:198.51.100.17:3478?transport=tcp",
    "turns:198.51.100.18:5349?transport=tcp", "turn:turn.example:3478"]}];
  const here = new RTCPeerConnection({iceServers: servers}), there = new RTCPeerConnection();
  here.createDataChannel("data");
  await here.setLocalDescription(await here.createOffer());
  await there.setRemoteDescription(here.localDescription);
  await there.setLocalDescription(await there.createAnswer());
  await here.setRemoteDescription(there.localDescription);
  for (const peer of peers)
    await here.addIceCandidate({candidate: `candidate:1 1 ${peer}`, sdpMid: "0", sdpMLineIndex: 0});
  window.tried = true;
});
setTimeout(() => fetch("/done"), 4000);
</script>"""
FILES = {
    "/worker.js": ("text/javascript", "fetch('http://198.51.100.33/', {mode: 'no-cors'})"),
    "/shared.js": ("text/javascript", "fetch('http://198.51.100.46/', {mode: 'no-cors'})"),
    "/prerendered": ("text/html", "<img src='http://198.51.100.29/'>"),
}
FIELDS = (
    ("Content-Security-Policy-Report-Only", "script-src 'none'; report-uri http://198.51.100.30/"),
    ("Link", "<http://198.51.100.43:8043>; rel=preconnect"),
)
SECONDS = (
    3.0  # between the last attempt and the last look; the browsers that are held are shown to send in it
)

# Every address is local (AnyIP), so that every packet can be seen on loopback; a second interface, since WebRTC leaves
# loopback out.
_NETWORK = """
ip link set lo up
ip link add out type veth peer name far && ip addr add 10.9.0.1/24 dev out && ip link set out up && ip link set far up
ip -6 addr add 2001:db8:9::1/64 dev out nodad
ip route add local default dev lo && ip -6 route add local default dev lo
ip route add default via 10.9.0.2 dev out && ip -6 route add default via 2001:db8:9::2 dev out
exec "$@"
"""


def inside(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` in a namespace with that network."""
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    return [*unshare, "sh", "-ec", _NETWORK, "sh", *command]


def why_not() -> str | None:
    """Return why no such network can be made on this machine, None where one can."""
    if (reason := can_isolate()) is not None:
        return reason
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            return f"there is no program {program}"
    probe = [sys.executable, "-c", "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"]
    made = subprocess.run(inside(probe), capture_output=True, text=True, check=False)
    return None if made.returncode == 0 else f"no network of our own: {made.stderr.strip()[-200:]}"


def sent_by(command: Sequence[str], state: Path) -> set[Packet]:
    """Run `command` in such a network and return the packets that it sent, but for those to listeners of its own."""
    watching = inside([sys.executable, "-m", "tests.proxy.small_internet", "watch", "--", *command])
    environment = os.environ | {"STILLWEB_STATE": str(state)}
    done = subprocess.run(
        watching, capture_output=True, text=True, timeout=STARTS, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return {(protocol, address, port) for protocol, address, port in json.loads(done.stdout)}


def _packet(frame: bytes) -> Packet | None:
    """Return what an Ethernet frame begins or carries; None for a reply, and for what the kernel itself says."""
    ip = frame[14:]
    if ip[0] >> 4 == 4:
        protocol, address, rest = ip[9], socket.inet_ntop(socket.AF_INET, ip[16:20]), ip[(ip[0] & 15) * 4 :]
    elif ip[0] >> 4 == 6:
        protocol, address, rest = ip[6], socket.inet_ntop(socket.AF_INET6, ip[24:40]), ip[40:]
    else:
        return None
    if protocol not in (socket.IPPROTO_TCP, socket.IPPROTO_UDP):
        return None
    port: int = struct.unpack(">H", rest[2:4])[0]
    if protocol == socket.IPPROTO_TCP:
        begins = rest[13] & 0x12 == 0x02  # SYN without ACK
        return ("tcp", address, port) if begins else None
    if port != 53:
        return ("udp", address, port)
    labels, question = [], rest[8 + 12 :]
    while question and question[0]:
        labels.append(question[1 : 1 + question[0]].decode("latin-1"))
        question = question[1 + question[0] :]
    return ("dns", ".".join(labels), port)


def _watch(command: Sequence[str]) -> None:
    seen: set[Packet] = set()
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))  # ETH_P_ALL
    tap.settimeout(0.1)
    ended = threading.Event()

    def look() -> None:
        while True:
            try:
                packet = _packet(tap.recv(65536))
            except TimeoutError:
                if ended.is_set():
                    return
                continue
            if packet is not None:
                seen.add(packet)

    looking = threading.Thread(target=look)
    looking.start()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    ended.set()
    looking.join()
    own = {int(word) for word in done.stdout.split() if word.isdigit()}
    others = sorted(p for p in seen if not (p[:2] == ("tcp", "127.0.0.1") and p[2] in own))
    sys.stdout.write(json.dumps(others))
    sys.exit(done.returncode)


@contextmanager
def _page() -> Iterator[tuple[int, threading.Event]]:
    """Serve the page on loopback; the port, and what is set when the page says that it is done."""
    done = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/done":
                done.set()
            media, content = FILES.get(self.path, ("text/html", PAGE)) if self.path else ("", "")
            content = content.encode()
            self.send_response(200)
            self.send_header("Content-Type", media)
            for name, value in FIELDS:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, done
    finally:
        server.shutdown()
        server.server_close()


def _plain() -> None:
    """A browser as it comes, with no proxy."""
    from stillweb.proxy.browser.browser import find_browser

    with _page() as (port, done), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        sys.stdout.write(f"{port}\n")
        words = [
            find_browser(),
            "--headless",
            "--no-sandbox",
            "--no-proxy-server",
            f"--user-data-dir={profile}",
        ]
        browser = subprocess.Popen([*words, f"http://127.0.0.1:{port}/"], stderr=subprocess.DEVNULL)
        arrived = done.wait(HANG)
        browser.terminate()
        browser.wait()
    assert arrived, "the page did not come to its end"


async def _ours(kind: str, less: Sequence[str], state: Path) -> None:
    """Our browser, through a gateway that has the page, or a recorder that fetches it."""
    from stillweb.proxy.browser import browser
    from stillweb.proxy.net.ca import Authority
    from stillweb.proxy.record.recorder import Recorder
    from stillweb.proxy.replay.gateway import Gateway
    from stillweb.snapshots.profile import Profile
    from stillweb.snapshots.writer import Writer
    from tests.proxy.frozen import Site

    browser.ARGUMENTS = tuple(_without(argument, less) for argument in browser.ARGUMENTS)
    authority = Authority.load_or_create(state / "ca")
    with _page() as (port, _):
        url = f"http://127.0.0.1:{port}/"
        site = Site(state / "snapshot")
        site.add(url, PAGE.encode(), headers=(("Content-Type", "text/html"), *FIELDS))
        for path, (media, content) in FILES.items():
            site.add(url + path[1:], content.encode(), headers=(("Content-Type", media),))
        with (
            site.open() as snapshot,
            Gateway(snapshot, authority=authority) as gateway,
            Writer.open(state / "recorded") as writer,
            Recorder(writer, authority=authority) as recorder,
        ):
            proxy = recorder if kind == "record" else gateway
            sys.stdout.write(f"{port} {gateway.port} {recorder.place[1]}\n")
            async with browser.BrowserHost(ca=authority.certificate_path) as host:
                context = await host.context("s", proxy.proxy_url("s"), Profile(), replay=kind != "record")
                page = await context.new_page()
                await page.goto(url, wait_until="commit")
                # Not wait_for_function, which never returned in some runs: the page navigates to #here meanwhile.
                async with asyncio.timeout(HANG):
                    while not await page.evaluate("window.tried === true"):
                        await asyncio.sleep(0.1)
                await asyncio.sleep(SECONDS)
                failed = await page.evaluate("failed")
                assert failed == [], failed
                listening = _listening() - {port, gateway.port, recorder.place[1]}
                assert not listening, f"the browser listens on {listening}"


def _without(argument: str, less: Sequence[str]) -> str:
    """The argument, or one that says nothing; of a list of features only those that are named are taken out."""
    if argument.startswith("--disable-features="):
        return ",".join(one for one in argument.split(",") if one not in less)
    return "--no-first-run" if any(one in argument for one in less) else argument


def _listening() -> set[int]:
    """The TCP ports that anybody in this namespace listens on."""
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path("/proc/net", name).read_text().splitlines()[1:]
    ]
    return {int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == "0A"}


def main(words: Sequence[str]) -> None:
    kind, *rest = words
    if kind == "watch":
        _watch(rest[1:])
    elif kind == "plain":
        _plain()
    else:
        with tempfile.TemporaryDirectory() as state:
            asyncio.run(_ours(kind, rest, Path(state)))


if __name__ == "__main__":
    main(sys.argv[1:])
