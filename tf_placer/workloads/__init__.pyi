from tf_placer.workloads.known import check_name as check_name
from tf_placer.workloads.known import names as names
from tf_placer.workloads.registry import build as build
from tf_placer.workloads.registry import find as find
from tf_placer.workloads.registry import function as function
from tf_placer.workloads.registry import register as register
from tf_placer.workloads.spec import Workload as Workload
