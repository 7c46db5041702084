"""`python -m rmqinspect.codec.compile_all`: compile all loops into the cache now, for images that are built once.

Without it each command compiles a loop when it first needs it.
"""

import sys
from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages

from rmqinspect.codec.kernels import Kernel, compile_mode, remarks


def all_kernels() -> dict[str, Kernel[..., object]]:
    """Return the kernels of all modules of the package, by the names of module and function."""
    package = import_module(Kernel.__module__.partition(".")[0])
    found = {}
    for listed in walk_packages(package.__path__, f"{package.__name__}."):
        with suppress(ImportError):  # Spark's modules without pyspark have no kernels either
            for value in vars(import_module(listed.name)).values():
                if isinstance(value, Kernel):
                    found[f"{value.function.__module__}.{value.function.__qualname__}"] = value
    return found


def main() -> int:
    """Compile all kernels; return the exit status."""
    kernels = all_kernels()
    with compile_mode("always"):
        compiled = sum(kernel.compile() for kernel in kernels.values())
    print("\n".join([f"{compiled} of {len(kernels)} loops are compiled", *remarks()]))
    return 1 if remarks() or compiled < len(kernels) else 0


if __name__ == "__main__":
    sys.exit(main())
