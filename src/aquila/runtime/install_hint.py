"""The pip command that installs an extra of this package where it came from."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

PACKAGE = "aquila-fl"


def install_hint(extra: str) -> str:
    """Return the command that adds the packages of an extra to this installation.

    The installer records whether the package came from a folder, from a URL or from an index.
    """
    try:
        record = distribution(PACKAGE).read_text("direct_url.json")
    except PackageNotFoundError:  # Python runs the source of a checkout that is not installed
        return f"pip install -e '.[{extra}]'"
    if record is None:
        return f"pip install '{PACKAGE}[{extra}]'"
    source = json.loads(record)
    if "dir_info" not in source:
        prefix = f"{source['vcs_info']['vcs']}+" if "vcs_info" in source else ""
        return f"pip install '{PACKAGE}[{extra}] @ {prefix}{source['url']}'"
    folder = Path(url2pathname(urlsplit(source["url"]).path))
    place = "." if folder == Path.cwd() else folder
    editable = "-e " if source["dir_info"].get("editable") else ""
    return f"pip install {editable}'{place}[{extra}]'"
