"""Everything below a folder, to tell whether a command wrote there."""

from pathlib import Path


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file and folder, by its path."""
    found = {path: path.lstat() for path in [folder, *folder.rglob("*")]}
    return {
        str(path): (stat.st_size if path.is_file() else 0, stat.st_mtime_ns)
        for path, stat in found.items()
    }


def assert_unchanged(folder: Path, before: dict[str, tuple[int, int]]) -> None:
    """Fails if anything was written, removed or touched since; what tests capture aside."""
    now = snapshot(folder)
    changed = {path for path in {*before, *now} if now.get(path) != before.get(path)}
    assert not {path for path in changed - {str(folder)} if "/printed-" not in path}
