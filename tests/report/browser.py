"""Headless Chromium: what a page becomes in it, and how it looks."""

from __future__ import annotations

import html
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-extensions", "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
# Runs in a copy of the page without its policy: every text that is cut off or lies over another.
_GEOMETRY = """
const wrong = [];
if (document.documentElement.scrollWidth > window.innerWidth + 1)
  wrong.push(`page is ${document.documentElement.scrollWidth} wide of ${window.innerWidth}`);
const pictures = [...document.querySelectorAll('svg[role=img]')];
for (const picture of pictures) {
  const frame = picture.getBoundingClientRect();
  const name = picture.getAttribute('aria-label');
  if (!(frame.width > 50 && frame.height > 50)) wrong.push(`${name}: no size`);
  const texts = [...picture.querySelectorAll('text')].map(t => [t, t.getBoundingClientRect()]);
  for (const [t, r] of texts) {
    if (r.left < frame.left - 1 || r.right > frame.right + 1 ||
        r.top < frame.top - 1 || r.bottom > frame.bottom + 1)
      wrong.push(`${name}: cut off: ${t.textContent}`);
    for (const [u, s] of texts) {
      if (t === u || t.compareDocumentPosition(u) & Node.DOCUMENT_POSITION_PRECEDING) continue;
      const w = Math.min(r.right, s.right) - Math.max(r.left, s.left);
      const h = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
      if (w > 1 && h > 3) wrong.push(`${name}: ${t.textContent} over ${u.textContent}`);
    }
  }
}
const out = document.createElement('pre');
out.id = 'geometry';
out.textContent = JSON.stringify({pictures: pictures.length, wrong});
document.body.append(out);
"""


def find() -> str | None:
    """The browser's path; None where none is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass(frozen=True)
class Chromium:
    """The browser at a path."""

    path: str

    def _run(self, folder: Path, *args: str) -> str:
        done = subprocess.run(
            [self.path, *_FLAGS, f"--user-data-dir={folder / 'profile'}", *args],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        assert console == [], console
        return done.stdout

    def dom(self, page: Path, width: int = 1300) -> str:
        """The document after the browser built it, as HTML. Its console has to stay empty."""
        return self._run(page.parent, f"--window-size={width},900", "--dump-dom", page.as_uri())

    def geometry(self, page: Path, width: int = 1300) -> dict[str, Any]:
        """How many pictures the page shows, and all in them that is cut off or overlaps."""
        text = page.read_text(encoding="utf-8")
        start = text.index('<meta http-equiv="Content-Security-Policy"')
        free = text[:start] + text[text.index(">", start) + 1 :]
        copy = page.with_name(f"geometry-{width}.html")
        copy.write_text(free.replace("</body>", f"<script>{_GEOMETRY}</script></body>"), "utf-8")
        found = self.dom(copy, width).split('<pre id="geometry">')[1].split("</pre>")[0]
        answer: dict[str, Any] = json.loads(html.unescape(found))
        return answer

    def screenshot(self, page: Path, height: int, *flags: str) -> Path:
        """A picture of the page, 1300 pixels wide."""
        out = page.with_suffix(".png")
        args = (f"--window-size=1300,{height}", f"--screenshot={out}", *flags, page.as_uri())
        self._run(page.parent, *args)
        return out
