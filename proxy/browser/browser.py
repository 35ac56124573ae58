"""One Chromium for all sessions: found, launched without traffic of its own, with a context for each.

Every context goes through a proxy of ours and looks as the snapshot's profile says.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from playwright._impl._errors import TargetClosedError
from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.browser.errors import SECONDS, first_line
from stillweb.proxy.net.addresses import with_session
from stillweb.proxy.net.open_files import allow_many_open_files
from stillweb.snapshots.dates import iso_date, parse_timestamp
from stillweb.snapshots.errors import MissingCapability, StillwebError
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT

if TYPE_CHECKING:
    from types import TracebackType

    from playwright.async_api import Browser, BrowserContext, Playwright, ProxySettings

    from stillweb.proxy.replay.gateway import Gateway
    from stillweb.snapshots.snapshot import Snapshot

START_SECONDS = 180.0  # a browser that takes longer never starts, however slow the machine
PULSE = 5.0  # seconds after which a browser is asked again whether it still answers
TAB_SECONDS = 5.0  # in which a tab of a running browser returns its storage
_STORED = "() => [origin, Object.entries(localStorage).map(([name, value]) => ({name, value}))]"
OPEN_FILES = 192  # 128 suffice to open a page; with 110 Chromium starts, and then hangs or dies
# the headless shell comes last: it is not a whole browser, but renders and reads the same
NAMES = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge",
    "chromium-headless-shell", "chrome-headless-shell",
)  # fmt: skip
ADVICE = (
    "no Chromium found: run 'playwright install chromium' or 'apt-get install chromium', "
    "or set STILLWEB_BROWSER to its path"
)
# Switched off for quiet and reproducibility. Chromium heeds only the last such switch, so Playwright's own
# are repeated here.
FEATURES_OFF = (
    "AutofillServerCommunication",  # asks Google about every form
    "AimEnabled",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "IsolateSandboxedIframes",  # a process of its own may start before it is frozen
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "SpareRendererForSitePerProcess",  # a process for each context that is hardly ever used
    "ThirdPartyStoragePartitioning",
    "WebUIOmniboxAimPopup",  # the address bar's own pages, in a process for each context
    "WebUIOmniboxFullPopup",
    "WebUIOmniboxPopup",
    "WebRtcHideLocalIpsWithMdns",  # multicasts a random name for each address; the policy below exposes none
)
# Only requests of pages, and rendering that doesn't depend on the machine's graphics.
ARGUMENTS = (
    f"--disable-features={','.join(FEATURES_OFF)}",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-domain-reliability",
    "--disable-client-side-phishing-detection",
    "--disable-default-apps",
    "--disable-extensions",
    "--no-first-run",
    "--no-pings",
    "--metrics-recording-only",
    "--dns-prefetch-disable",
    # Keep WebRTC from sending UDP past the proxy. Chromium renamed the switch, and heeds one of the two
    # names.
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--disable-gpu",
    "--disable-smooth-scrolling",
    "--blink-settings=imageAnimationPolicy=2",  # animated images stand still
    "--disable-lcd-text",
    "--disable-checker-imaging",
    "--disable-partial-raster",
    "--disable-skia-runtime-opts",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
)


def _downloads() -> list[Path]:
    """Return the folders in which Playwright keeps the browsers that it downloads."""
    named = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    if named and named != "0":
        return [Path(named)]
    home = Path.home()
    return [home / ".cache/ms-playwright", home / "Library/Caches/ms-playwright"]


def find_browser() -> Path:
    """Return the Chromium to use: $STILLWEB_BROWSER, one on PATH, or Playwright's newest download.

    Raises MissingCapability with the command to run.
    """
    named = os.environ.get("STILLWEB_BROWSER")
    if named:
        found = shutil.which(named)
        if found is None:
            raise MissingCapability(f"STILLWEB_BROWSER: {named} is not a program that can be run")
        return Path(found)
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return Path(found)
    for folder in _downloads():
        builds = sorted(folder.glob("chromium*-*"), key=_build, reverse=True)
        for build in builds:
            for pattern in (
                "chrome-*/chrome",
                "chrome-*/headless_shell",
                "chrome-mac*/*.app/Contents/MacOS/*",
            ):
                for program in sorted(build.glob(pattern)):
                    if os.access(program, os.X_OK):
                        return program
    raise MissingCapability(ADVICE)


def _build(folder: Path) -> tuple[int, bool]:
    digits = re.search(r"-(\d+)$", folder.name)
    return (int(digits.group(1)) if digits else 0, "headless" not in folder.name)


def build_of(executable: Path) -> str:
    """Return a browser's build without starting it, in the form of `BrowserHost.build`; "" if unknown."""
    try:
        done = subprocess.run(
            [executable, "--version"], capture_output=True, text=True, timeout=START_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    version = re.search(r"\d+\.\d+\.\d+\.\d+", done.stdout)
    return f"Chromium {version.group()}" if version else ""


def complete(profile: Profile, build: str | None = None) -> Profile:
    """Return the profile with the browser's build and a plain user agent filled in.

    `build` None asks the browser that `find_browser` finds. Call this before `Writer.open`.
    """
    if profile.user_agent and profile.browser:
        return profile
    build = profile.browser or build or build_of(find_browser())
    major = build.removeprefix("Chromium ").partition(".")[0] or "140"
    agent = f"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{major}.0.0.0 Safari/537.36"
    return replace(profile, user_agent=profile.user_agent or agent, browser=profile.browser or build)


def new_profile(**settings: Any) -> Profile:
    """Return the profile of a recording that begins now, complete for this browser.

    `settings` are members of the profile; the clock is by default the present second.
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return complete(Profile(**{"clock": now, **settings}))


def profile_of(snapshot: Snapshot | None) -> Profile:
    """Return the profile for a snapshot's pages.

    A snapshot without one (a foreign archive, a program's requests) gets a clock that starts at its first
    capture.
    """
    if snapshot is None:
        return complete(Profile())
    if snapshot.profile is not None:
        return complete(snapshot.profile)
    first = parse_timestamp(snapshot.began)
    return complete(Profile(clock=iso_date(first)) if first is not None else Profile())


# Of xdg-utils; Chromium on Linux hands addresses and files to them
DESKTOP_PROGRAMS = (
    *("xdg-desktop-icon", "xdg-desktop-menu", "xdg-email", "xdg-icon-resource", "xdg-mime"),
    *("xdg-open", "xdg-screensaver", "xdg-settings", "xdg-terminal"),
)


def environment(folder: Path) -> dict[str, str | float | bool]:
    """Return the environment of a browser that starts no other program for an address, such as `mailto:`.

    In `folder`, the first of its PATH, a program that does nothing stands for each that Chromium would start,
    for some addresses without asking.
    """
    nothing = shutil.which("false") or "/bin/false"
    for name in DESKTOP_PROGRAMS:
        (folder / name).symlink_to(nothing)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def spki_hash(certificate: bytes) -> str:
    """Return the base64 SHA-256 of a PEM certificate's public key, for Chromium's SPKI list.

    See RFC 7469, 2.4.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_pem_x509_certificate(certificate).public_key()
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


def proxy_settings(proxy_url: str) -> ProxySettings:
    """Return Playwright's form of `http://session:x@host:port`; loopback goes through the proxy too."""
    parts = urlsplit(proxy_url)
    settings: ProxySettings = {"server": f"http://{parts.netloc.rpartition('@')[2]}", "bypass": "<-loopback>"}
    if parts.username:
        settings |= {"username": unquote(parts.username), "password": unquote(parts.password or "x")}
    return settings


class BrowserHost:
    """A Chromium shared by many sessions.

    `ca` is a PEM file of a CA that may sign any host's certificate. If it is given at launch, pages are as
    trusted as on the live web (service workers, caching); a context with another CA accepts any certificate
    instead. `cdp` is the address of a running browser to attach to (`http://127.0.0.1:9222`); contexts begin
    with the cookies and storage of its own. `begin` holds options of Playwright's new_context for every
    context. An async context manager, for one event loop.
    """

    def __init__(
        self,
        *,
        ca: Path | None = None,
        headless: bool = True,
        executable: Path | None = None,
        cdp: str | None = None,
        begin: Mapping[str, Any] | None = None,
    ) -> None:
        self._ca = ca
        self._headless = headless
        self._executable = executable
        self._cdp = cdp
        self._begin = dict(begin or {})
        self._playwright: Playwright | None = None
        self._launching: asyncio.Future[Browser] | None = None
        self._browser: Browser | None = None
        self._starting = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._silent = False  # the browser did not answer: it is stopped, or hangs
        self._shadows: tempfile.TemporaryDirectory[str] | None = None

    async def start(self) -> BrowserHost:
        """Launch the browser unless it is running. Raises MissingCapability if it can't be started."""
        async with self._starting:
            if self._browser is not None and not self._browser.is_connected():
                await self.check()
                await self.close()
            if self._browser is None:
                await self._launch()
        return self

    async def check(self) -> None:
        """Raise MissingCapability if a browser that was attached to is gone: nobody here can start it again."""
        if self._cdp is None or self._browser is None:
            return
        try:
            await (await self._browser.new_browser_cdp_session()).detach()
        except PlaywrightError as error:
            why = f"did not answer for {SECONDS:g} s" if self._silent else f"is gone ({first_line(error)})"
            raise MissingCapability(
                f"{self._cdp}: the browser {why}. What was recorded until then is kept; "
                "start the browser again and record what is left into the same directory"
            ) from None

    async def _watch(self, browser: Browser, playwright: Playwright) -> None:
        """End Playwright's driver once the browser is silent for `SECONDS`.

        Then every call to the browser fails that would wait for ever: for a context, a page, or their end.
        """
        session = None

        async def ask() -> None:
            nonlocal session
            session = session or await browser.new_browser_cdp_session()
            await session.send("Browser.getVersion")

        while True:
            asked = asyncio.ensure_future(ask())
            try:
                # twice: where this process was stopped itself, the first wait is over at once
                for _ in range(2):
                    await asyncio.wait([asked], timeout=SECONDS / 2)
                self._silent = not asked.done()
                if self._silent:
                    await playwright.stop()
            finally:
                asked.cancel()
            if not asked.done() or asked.exception() is not None:
                return
            await asyncio.sleep(PULSE)

    async def _new_context(self, options: dict[str, Any]) -> BrowserContext:
        """Create a context, in a new browser if Playwright's driver has ended: `is_connected` does not tell that."""
        await self.start()
        browser = self._browser
        assert browser is not None
        try:
            return await browser.new_context(**options)
        except TargetClosedError:
            await self.check()
            async with self._starting:
                if self._browser is browser:
                    await self.close()
        await self.start()
        assert self._browser is not None
        return await self._browser.new_context(**options)

    async def _attach(self, address: str) -> None:
        """Connect to a running browser, and take the cookies and storage of its own pages."""
        from playwright.async_api import Error

        assert self._playwright is not None
        try:
            self._browser = await self._playwright.chromium.connect_over_cdp(
                address, timeout=START_SECONDS * 1000
            )
            self._watching = asyncio.ensure_future(self._watch(self._browser, self._playwright))
            if self._browser.contexts and "storage_state" not in self._begin:
                self._begin["storage_state"] = await _state_of(self._browser.contexts[0])
        except Error as error:
            await self.close()
            raise MissingCapability(
                f"{address}: no browser can be attached to ({first_line(error)}). "
                "Start it with --remote-debugging-port=9222, and give http://127.0.0.1:9222"
            ) from None

    async def _launch(self) -> None:
        from playwright.async_api import Error, async_playwright

        if self._playwright is None:
            # its driver would wait for fonts without an end; `page_snapshot.picture` waits for them with one
            os.environ.setdefault("PW_TEST_SCREENSHOT_NO_FONTS_READY", "1")
            self._playwright = await async_playwright().start()
        if self._cdp is not None:
            await self._attach(self._cdp)
            return
        executable = self._executable or find_browser()
        allow_many_open_files(OPEN_FILES)
        arguments = list(ARGUMENTS)
        if sys.platform.startswith("linux") and os.geteuid() == 0:
            arguments.append("--no-sandbox")
        if self._ca is not None:
            arguments.append(f"--ignore-certificate-errors-spki-list={spki_hash(self._ca.read_bytes())}")
        self._shadows = tempfile.TemporaryDirectory(prefix="stillweb-browser-", ignore_cleanup_errors=True)
        try:
            self._launching = asyncio.ensure_future(
                self._playwright.chromium.launch(
                    executable_path=executable,
                    env=environment(Path(self._shadows.name)),
                    headless=self._headless,
                    timeout=START_SECONDS * 1000,
                    args=arguments,
                    handle_sigint=False,  # Ctrl-C is ours: recordings are closed in order
                    handle_sigterm=False,
                    handle_sighup=False,
                    # the browser's own traffic goes nowhere: the rules above resolve no such name, and RFC
                    # 6761 reserves it
                    proxy={"server": "http://proxy.invalid:9"},
                )
            )
            self._browser = await asyncio.shield(self._launching)
            self._watching = asyncio.ensure_future(self._watch(self._browser, self._playwright))
        except Error as error:
            await self.close()
            if "Missing X server" in error.message:
                raise MissingCapability(
                    "headful: no display to show a window on. Set DISPLAY, start it by xvfb-run, or leave headful out"
                ) from None
            raise MissingCapability(f"{executable} can't be started: {first_line(error)}") from None

    async def close(self) -> None:
        """End the browser and Playwright's driver. Wait for a browser that is still starting."""
        launching, self._launching = self._launching, None
        browser, self._browser = self._browser, None
        playwright, self._playwright = self._playwright, None
        watching, self._watching = self._watching, None
        try:
            if self._cdp is not None and browser is not None:
                await browser.close()  # closes our contexts and the connection; the browser stays
            # a browser killed while starting would leave a directory behind
            if launching is not None and await _begun(launching):
                await launching.result().close()
        finally:  # Playwright's driver ends the browser as well
            if watching is not None:
                watching.cancel()
            if playwright is not None:
                await playwright.stop()
            if self._shadows is not None:
                self._shadows.cleanup()
                self._shadows = None

    async def __aenter__(self) -> BrowserHost:
        try:
            return await self.start()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def build(self) -> str:
        """The running browser, as a profile names it: "Chromium 140.0.7339.80"."""
        assert self._browser is not None, "start() first"
        return f"Chromium {self._browser.version}"

    def difference(self, profile: Profile) -> str | None:
        """Return a warning if the snapshot was recorded with another build, None if they agree."""
        if not profile.browser or profile.browser == self.build:
            return None
        return f"recorded with {profile.browser}, this is {self.build}: drawing and layout may differ"

    async def context(
        self,
        session: str,
        proxy_url: str,
        profile: Profile,
        ca: Path | None = None,
        replay: bool = True,
        **more: Any,
    ) -> BrowserContext:
        """Create a fresh context: own cookies and storage, this proxy, this profile, time and chance frozen.

        `session` is put into the proxy's credentials if `proxy_url` names none. With `replay`, a page waits
        for streams until all that was recorded has come; the freezing is otherwise the same while recording.
        `more` goes to Playwright's new_context.
        """
        from stillweb.proxy.browser.freeze import install

        await self.start()
        if not urlsplit(proxy_url).username:
            proxy_url = with_session(proxy_url, session)
        full = complete(profile, self.build)
        options: dict[str, Any] = {
            "user_agent": full.user_agent,
            "viewport": {"width": full.viewport[0], "height": full.viewport[1]},
            "locale": full.locale,
            "timezone_id": full.timezone,
            "reduced_motion": "reduce" if full.reduced_motion else "no-preference",
            "color_scheme": "light",
            "device_scale_factor": full.scale,
            "is_mobile": full.mobile,
            "has_touch": full.touch,
            "extra_http_headers": {
                name: value
                for name, value in full.headers
                if replay or not PSEUDONYM_TEXT.search(value)  # the live site knows no pseudonym
            },
            "service_workers": "block",  # whether one is installed in time depends on the machine's speed
            # the proxy checks the origin; Playwright's own fetches need this too
            "ignore_https_errors": True,
            "accept_downloads": True,
            "proxy": proxy_settings(proxy_url),
        }
        if replay and full.storage:
            options["storage_state"] = _state(full.storage)
        begin = dict(self._begin)
        options["extra_http_headers"] |= begin.pop("extra_http_headers", {})
        context = await self._new_context(options | begin | more)
        await install(context, full, proxy_url, replay=replay)
        return context


async def _state_of(context: BrowserContext) -> dict[str, Any]:
    """Return the cookies of a running browser, and the local storage of the sites in its tabs.

    Playwright's own storage state lacks the storage of pages that were loaded before it attached.
    """
    state: dict[str, Any] = dict(await context.storage_state())
    origins = {one["origin"]: one for one in state["origins"]}
    for frame in [frame for page in context.pages for frame in page.frames]:
        try:
            origin, items = await asyncio.wait_for(frame.evaluate(_STORED), TAB_SECONDS)
        except (PlaywrightError, TimeoutError):
            continue  # it has no storage, goes away, or a script holds it up
        if items and origin.startswith("http"):
            origins[origin] = {"origin": origin, "localStorage": items}
    return state | {"origins": list(origins.values())}


def _state(storage: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """Return local storage as Playwright's storage state."""
    origins: dict[str, list[dict[str, str]]] = {}
    for origin, name, value in storage:
        origins.setdefault(origin, []).append({"name": name, "value": value})
    return {
        "cookies": [],
        "origins": [{"origin": one, "localStorage": all_} for one, all_ in origins.items()],
    }


async def _begun(launching: asyncio.Future[Browser]) -> bool:
    await asyncio.wait([launching])
    return not launching.cancelled() and launching.exception() is None


@asynccontextmanager
async def lend_browser(
    host: BrowserHost | None, ca: Path, launch: Mapping[str, Any] | None = None
) -> AsyncIterator[BrowserHost]:
    """Yield the given browser, which stays open, or one of its own that is closed at the end.

    The own browser trusts the CA `ca`; `launch` holds more arguments of its BrowserHost.
    """
    if host is not None:
        yield host
        return
    own = BrowserHost(ca=ca, **(launch or {}))
    try:
        yield own
    finally:
        await own.close()


# s until the next is made, unless it is wanted before: the attempt that has just got one is about to use the machine
LATER = 0.5
_numbers = itertools.count(1)


class ContextPool:
    """At most one spare context, with a page, for each gateway and profile.

    Belongs to the browser's event loop.
    """

    def __init__(self, host: BrowserHost) -> None:
        self.host = host
        self._made: dict[tuple[str, Profile], asyncio.Task[tuple[str, BrowserContext]]] = {}
        self._wanted: dict[tuple[str, Profile], asyncio.Event] = {}

    async def take(self, session: str, gateway: Gateway, profile: Profile) -> BrowserContext:
        """Return a fresh context with one page, for a session. Raises what `BrowserHost.context` raises."""
        key = (gateway.proxy_url("spare"), profile)
        spare = self._made.pop(key, None)
        context = None
        if spare is not None:
            self._wanted[key].set()
            try:
                name, context = await spare
                await context.cookies()  # raises if browser or driver have ended
                if context.pages:
                    gateway.rename(name, session)
                else:  # the browser has lost it
                    context = None
            except (PlaywrightError, StillwebError):
                context = None
        if context is None:
            context = await self.host.context(session, gateway.proxy_url(session), profile, gateway.ca_path)
            await context.new_page()
        if key not in self._made:
            wanted = self._wanted[key] = asyncio.Event()
            self._made[key] = asyncio.ensure_future(self._make(gateway, profile, wanted))
        return context

    async def _make(
        self, gateway: Gateway, profile: Profile, wanted: asyncio.Event
    ) -> tuple[str, BrowserContext]:
        with suppress(TimeoutError):
            await asyncio.wait_for(wanted.wait(), LATER)
        name = f"stillweb-spare-{next(_numbers)}"
        context = await self.host.context(name, gateway.proxy_url(name), profile, gateway.ca_path)
        await context.new_page()
        return name, context

    async def close(self) -> None:
        """Drop the spares without waiting for those in the making."""
        made, self._made = list(self._made.values()), {}
        for task in made:
            task.cancel()
        await asyncio.gather(*made, return_exceptions=True)
