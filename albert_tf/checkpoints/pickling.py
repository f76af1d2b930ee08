"""Pickle and copy for classes that run a model."""

from functools import wraps
from typing import Any, ClassVar


class Picklable:
    """Base class of objects that are pickled as the arguments of their constructor.

    Models are pickled by Keras, as the bytes of a `.keras` file.
    """

    STATE: ClassVar[tuple[str, ...]] = ()  # attributes that change after the construction
    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        initialize = cls.__dict__.get("__init__")
        if initialize is None:
            return

        @wraps(initialize)
        def keep_arguments(self: Any, *args: Any, **kwargs: Any) -> None:
            self.__dict__.setdefault("_arguments", (args, kwargs))  # of the subclass
            initialize(self, *args, **kwargs)

        cls.__init__ = keep_arguments  # type: ignore[method-assign]

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: getattr(self, name) for name in self.STATE}
        return _construct, (type(self), *self._arguments, state)


def _construct(kind: type, args: Any, kwargs: dict[str, Any], state: dict[str, Any]) -> Any:
    self = kind(*args, **kwargs)
    for name, value in state.items():
        setattr(self, name, value)
    return self
