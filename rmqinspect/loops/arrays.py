"""The arrays that loops take: for the type checker, and for the tests, which compare them with `arrays.pxd`.

A loop writes to none but `...Out`. Arrays are C-contiguous.
"""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]
BytesOut = Annotated[NDArray[np.uint8], "written"]
IntsOut = Annotated[NDArray[np.int64], "written"]
Int32sOut = Annotated[NDArray[np.int32], "written"]
Table = Annotated[NDArray[np.int64], "two dimensions"]  # one column of int64 per row
TableOut = Annotated[NDArray[np.int64], "two dimensions", "written"]
Int32Table = Annotated[NDArray[np.int32], "two dimensions"]
ByteTableOut = Annotated[NDArray[np.uint8], "two dimensions", "written"]
Int32TableOut = Annotated[NDArray[np.int32], "two dimensions", "written"]
