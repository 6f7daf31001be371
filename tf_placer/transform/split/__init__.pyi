from tf_placer.transform.split.split_batch import SplitProgram as SplitProgram
from tf_placer.transform.split.split_batch import split as split
from tf_placer.transform.split.split_batch import split_program as split_program
