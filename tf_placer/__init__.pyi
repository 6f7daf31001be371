from tf_placer.automatic.auto_placed import RunsAsItIs as RunsAsItIs
from tf_placer.automatic.auto_placed import auto_place as auto_place
from tf_placer.base.arguments import InputError as InputError
from tf_placer.calibration.build_problem import build_problem as build_problem
from tf_placer.cluster.cluster import Cluster as Cluster
from tf_placer.evaluation.runtime import RuntimeEvaluator as RuntimeEvaluator
from tf_placer.evaluation.simulated import Measurement as Measurement
from tf_placer.evaluation.simulated import SimulatedEvaluator as SimulatedEvaluator
from tf_placer.evaluation.simulated import Status as Status
from tf_placer.graph.item import Item as Item
from tf_placer.problem.analytic_problem import pinned as pinned
from tf_placer.problem.placement import Decisions as Decisions
from tf_placer.problem.placement import Placement as Placement
from tf_placer.problem.problem import Problem as Problem
from tf_placer.report_page.page import write_timeline as write_timeline
from tf_placer.rewrite.load_saved_model import load_saved_model as load_saved_model
from tf_placer.rewrite.placed_function import placed_function as placed_function
from tf_placer.rewrite.rewrite import apply_placement as apply_placement
from tf_placer.rewrite.saved_model import export_saved_model as export_saved_model
from tf_placer.search.methods import methods as methods
from tf_placer.search.recorder import SearchResult as SearchResult
from tf_placer.search.search import search as search
from tf_placer.transform.split.split_batch import split as split
from tf_placer.workers.local_workers import attach as attach
from tf_placer.workers.local_workers import session_target as session_target

__version__: str
