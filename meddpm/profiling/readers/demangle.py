"""Names of C++ functions as torch.profiler prints them, from the mangled ones that Nsight Compute can print."""

import ctypes
from collections.abc import Callable
from functools import cache, lru_cache

# Longer than any real name: what a damaged file could make of one is not worth the time.
LONGEST = 100_000


@lru_cache(maxsize=65536)
def demangle(name: str) -> str:
    """The C++ name of a mangled one, by `__cxa_demangle` of the system's libstdc++, as Kineto does it.

    A name that is not mangled comes back unchanged, and so does every name where the library is not there.
    """
    # Without the prefix the function reads names of types: "f" would become "float".
    if not name.startswith("_Z") or len(name) > LONGEST or "\0" in name:
        return name
    call = _library()
    return name if call is None else call(name)


@cache
def _library() -> Callable[[str], str] | None:
    try:
        function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError, TypeError):
        return None
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    free.restype = None
    free.argtypes = [ctypes.c_void_p]

    def call(name: str) -> str:
        status = ctypes.c_int()
        found = function(name.encode("utf-8", "surrogateescape"), None, None, ctypes.byref(status))
        if not found:
            return name
        try:
            text = ctypes.string_at(found).decode("utf-8", "replace")
        finally:
            free(found)
        return text if status.value == 0 else name

    return call
