"""Measures how soon the front page of the site can be used on a slow phone.

    recapture site --output build/site
    python -m benchmarks.page_speed build/site [--times N]

A browser loads the page from a server that compresses, as pages are published. As Lighthouse does for a phone, the
processor is slowed to a quarter and the network to 1.6 Mbit/s with 150 ms a round trip. The page can be used when its
search line answers. The shortest of some loads is told, because another process can only make a load longer.

Where other processes keep the machine busy, no such load says anything. The page's own time of the processor does: it
is measured without throttling, and told with its parts, once until the page can be used and once until a first search
has its answer, for which the browser loads the data of all cells.
"""

from __future__ import annotations

import functools
import gzip
import http.server
import shutil
import threading
from pathlib import Path
from typing import Any

import click
from playwright.sync_api import Browser, sync_playwright

SLOWER = 4
"""How many times slower the processor is."""

NETWORK = {
    "offline": False,
    "latency": 150.0,
    "downloadThroughput": 1.6 * 1024 * 1024 / 8 * 0.9,
    "uploadThroughput": 750 * 1024 / 8 * 0.9,
}
"""Milliseconds a round trip and bytes a second, as in Lighthouse's settings for a phone."""


class Compressing(http.server.SimpleHTTPRequestHandler):
    """Serves the files of a folder, compressed."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with a file, or with 404."""
        path = Path(self.translate_path(self.path))
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file():
            self.send_error(404)
            return
        content = gzip.compress(path.read_bytes())
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing about each file."""


def load_once(browser: Browser, address: str) -> dict[str, float]:
    """Return the milliseconds until the first paint and until the page can be used, and the bytes that came."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    session.send("Network.emulateNetworkConditions", NETWORK)
    session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    received: list[float] = []
    session.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    page.add_init_script(
        """new MutationObserver(() => {
             if (document.body?.dataset.ready === "yes" && !window.usable) window.usable = performance.now();
           }).observe(document, {attributes: true, subtree: true});"""
    )
    page.goto(address)
    page.wait_for_function("window.usable")
    times: dict[str, float] = page.evaluate(
        """({usable: window.usable,
             painted: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN})"""
    )
    context.close()
    return {**times, "bytes": sum(received)}


PARTS = {
    "ThreadTime": "in all",
    "RecalcStyleDuration": "styles",
    "LayoutDuration": "layout",
    "ScriptDuration": "scripts",
}
"""What the browser counts of the page's thread, in seconds of the processor."""


def processor_times(browser: Browser, address: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return the milliseconds of the processor by part: until the page can be used, and then for a first answer."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> dict[str, float]:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return {row["name"]: 1000 * row["value"] for row in metrics if row["name"] in PARTS}

    page.goto(address)
    page.wait_for_function("document.body.dataset.ready === 'yes'")
    start = spent()
    page.fill("#q", "argmin")
    page.wait_for_selector(".hits li")
    answer = {name: value - start[name] for name, value in spent().items()}
    context.close()
    return start, answer


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--times", default=5, show_default=True)
def main(folder: Path, times: int) -> None:
    """Print the shortest of some loads of the front page of a site."""
    handler: Any = functools.partial(Compressing, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        loads = [load_once(browser, f"http://127.0.0.1:{server.server_port}/index.html") for _ in range(times)]
        times_spent = [
            processor_times(browser, f"http://127.0.0.1:{server.server_port}/index.html") for _ in range(times)
        ]
        browser.close()
    server.shutdown()
    best = min(loads, key=lambda load: load["usable"])
    print(
        f"first paint {best['painted']:.0f} ms, can be used {best['usable']:.0f} ms, {best['bytes'] / 1000:.0f} kB "
        f"(the shortest of {times} loads; the longest {max(load['usable'] for load in loads):.0f} ms)"
    )
    for words, spent in zip(
        ("until it can be used", "for a first answer"), zip(*times_spent, strict=True), strict=True
    ):
        parts = ", ".join(
            f"{name} {min(row[part] for row in spent):.0f} to {max(row[part] for row in spent):.0f} ms"
            for part, name in PARTS.items()
        )
        print(f"time of the processor {words}, without throttling: {parts}")


if __name__ == "__main__":
    main()
