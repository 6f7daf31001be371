"""Splitting the batch: an Item whose ops work on parts of the examples."""

from typing import TYPE_CHECKING

from tf_placer.base.lazy_face import make_lazy

if TYPE_CHECKING:
    from tf_placer.transform.split.split_batch import SplitProgram
    from tf_placer.transform.split.split_batch import split
    from tf_placer.transform.split.split_batch import split_program
    from tf_placer.transform.split.rules import split_types

__all__ = ["SplitProgram", "split", "split_program", "split_types"]

make_lazy(
    __name__,
    {
        "SplitProgram": "tf_placer.transform.split.split_batch",
        "split": "tf_placer.transform.split.split_batch",
        "split_program": "tf_placer.transform.split.split_batch",
        "split_types": "tf_placer.transform.split.rules",
    },
)
