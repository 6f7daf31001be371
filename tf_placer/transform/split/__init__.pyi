from tf_placer.transform.split.rules import split_types as split_types
from tf_placer.transform.split.split_batch import SplitProgram as SplitProgram
from tf_placer.transform.split.split_batch import split as split
from tf_placer.transform.split.split_batch import split_program as split_program
