"""``python -m panstream.audit``: the quick audit as the Markdown table of docs/explanation/how-we-check.md."""

import os

from panstream.audit import audit, cases, to_markdown

if __name__ == "__main__":
    print(to_markdown(audit(cases(), jobs=os.cpu_count() or 1)))
