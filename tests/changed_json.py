"""Changes JSON files, also inside `.keras` files."""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def change_json(path: Path, **values: Any) -> None:
    """Changes values of a JSON object."""
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**content, **values}), "utf-8")


def changed_copy(
    path: Path, target: Path, member: str, values: dict[str, Any], keys: Sequence[str] = ()
) -> Path:
    """Copies a `.keras` file with changed values in a JSON member, in the object at `keys`."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as copy:
        for name in source.namelist():
            content = source.read(name)
            if name == member or name.endswith(f"/{member}"):
                root = part = json.loads(content)
                for key in keys:
                    part = part[key]
                part.update(values)
                content = json.dumps(root).encode()
            copy.writestr(name, content)
    return target
