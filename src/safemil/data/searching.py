"""Bounds on the search for logs in folders and by patterns."""

import glob
import math
import os
from pathlib import Path

from safemil.errors import InputError

MOST_FOUND = 1_000_000  # files and folders below a folder that is searched


def require_few(path: Path) -> None:
    """Refuse a folder or a pattern below which there is too much to look at, such as a whole disk."""
    fixed = next((i for i, part in enumerate(path.parts) if glob.has_magic(part)), len(path.parts))
    top, pattern = Path(*path.parts[:fixed]), path.parts[fixed:]
    depth = math.inf if "**" in pattern or not pattern else len(pattern)
    found = 0
    for folder, folders, files in os.walk(top, followlinks=bool(pattern)):
        found += len(folders) + len(files)
        if found > MOST_FOUND:
            raise InputError(
                f"{path} would be searched for in more than {MOST_FOUND:,} files and folders below {top}; "
                "name a smaller folder or a narrower pattern."
            )
        if len(Path(folder).relative_to(top).parts) + 1 >= depth:
            folders.clear()
