"""What the site has that the pages alone have not: MathML instead of a script, the threat model, no dead links."""

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
SOURCE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:src|examples|benchmarks|packaging)/[^)]*\)")
SHORT_CODE = re.compile(r"<code>([^<]{1,28})</code>")
ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add SECURITY.md, which lies beside the folder of pages."""
    text = (ROOT / "SECURITY.md").read_text("utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "security.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead to that page; name files of the repository without a link, since the site does not have them."""
    up = "../" * page.file.src_uri.count("/")
    markdown = re.sub(r"\]\((?:\.\./)+SECURITY\.md", f"]({up}security.md", markdown)
    return SOURCE.sub(r"\1", markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Replace formulas by MathML, so that pages load nothing from elsewhere, and keep short code in one line."""
    return SHORT_CODE.sub(r'<code class="whole">\1</code>', FORMULA.sub(_mathml, content))


def on_post_build(config: Any, **_: Any) -> None:
    """Remove the page for missing pages: its links hold at the top of a server only, and the site may lie anywhere."""
    (Path(config.site_dir) / "404.html").unlink(missing_ok=True)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match[2] == "[" else "inline"
    return convert(html.unescape(match[3]), display=display)
