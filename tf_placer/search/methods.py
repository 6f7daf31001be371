"""Every search method: the table, and who is who in it."""

from __future__ import annotations

import dataclasses

from tf_placer.agents.colocrl.config import ColocRlConfig
from tf_placer.agents.colocrl.learner import NETWORK_VERSION as COLOCRL_NETWORK_VERSION
from tf_placer.agents.colocrl.learner import ColocRlLearner
from tf_placer.agents.features import FEATURES_VERSION, RELATIVE_VERSION
from tf_placer.agents.go.config import GoConfig
from tf_placer.agents.go.kind import NETWORK_VERSION as GO_NETWORK_VERSION
from tf_placer.agents.go.learner import GoLearner
from tf_placer.agents.go.student import GoStudent
from tf_placer.agents.go.zero_shot import GoZeroShotConfig, go_zero_shot
from tf_placer.agents.hdp.config import HdpConfig
from tf_placer.agents.hdp.learner import NETWORK_VERSION as HDP_NETWORK_VERSION
from tf_placer.agents.hdp.learner import HdpLearner
from tf_placer.agents.learned_list.config import LearnedListConfig
from tf_placer.agents.learned_list.planner import STATE_VERSION as RULES_VERSION
from tf_placer.agents.learned_list.planner import LearnedList
from tf_placer.agents.learned_list.student import LearnedListStudent
from tf_placer.agents.mars.config import MarsConfig
from tf_placer.agents.mars.kind import NETWORK_VERSION as MARS_NETWORK_VERSION
from tf_placer.agents.mars.learner import MarsLearner
from tf_placer.agents.mars.student import MarsStudent
from tf_placer.agents.placeto.config import PlacetoConfig
from tf_placer.agents.placeto.learner import NETWORK_VERSION as PLACETO_NETWORK_VERSION
from tf_placer.agents.placeto.learner import PlacetoLearner
from tf_placer.agents.post.config import PostConfig
from tf_placer.agents.post.learner import TABLE_VERSION as POST_TABLE_VERSION
from tf_placer.agents.post.learner import PostLearner
from tf_placer.agents.regal.config import RegalConfig
from tf_placer.agents.regal.learner import NETWORK_VERSION as REGAL_NETWORK_VERSION
from tf_placer.agents.regal.learner import RegalLearner
from tf_placer.agents.tabular.config import TabularConfig
from tf_placer.agents.tabular.learner import TABLE_VERSION as TABULAR_TABLE_VERSION
from tf_placer.agents.tabular.learner import TabularLearner
from tf_placer.agents.weights import SHIPPED
from tf_placer.errors import InputError
from tf_placer.planners.brkga import Brkga, BrkgaConfig
from tf_placer.planners.cem import Cem, CemConfig
from tf_placer.planners.cp_sat import CpSat, CpSatConfig
from tf_placer.planners.cpu_only import cpu_only
from tf_placer.planners.expert import expert
from tf_placer.planners.heft import heft
from tf_placer.planners.list_schedule import list_schedule
from tf_placer.planners.local_search import LocalSearch
from tf_placer.planners.local_search_config import LocalSearchConfig
from tf_placer.planners.m_etf import m_etf
from tf_placer.planners.m_sct import MSctConfig, m_sct
from tf_placer.planners.m_topo import m_topo
from tf_placer.planners.memetic import memetic
from tf_placer.planners.memetic_config import MemeticConfig
from tf_placer.planners.metis import metis
from tf_placer.planners.peft import peft
from tf_placer.planners.random_search import RandomSearch, RandomSearchConfig
from tf_placer.planners.scotch import mincut, scotch
from tf_placer.planners.simulated_local_search import SimulatedLocalSearch
from tf_placer.planners.simulated_memetic import STATE_VERSION as MEMETIC_STATE_VERSION
from tf_placer.planners.simulated_memetic import SimulatedMemetic
from tf_placer.planners.single_device import single_device_placements
from tf_placer.planners.tf_default import tf_default
from tf_placer.planners.topological_fill import topological_fill
from tf_placer.registration import check_registration
from tf_placer.search.known import check_name
from tf_placer.search.portfolio import RACE_VERSION, PortfolioConfig, portfolio_rounds
from tf_placer.search.round import Method
from tf_placer.search.spec import Kind, MethodSpec, Role

SPECS = (
    MethodSpec(
        name="auto",
        kind=Kind.OWN_ROUNDS,
        summary="Portfolio: cheap plans, then searches in turn; the time goes to what gains (Gomes & Selman 2001).",
        build=portfolio_rounds(lambda: having(Role.MEMBER)),
        config=PortfolioConfig,
        roles=frozenset({Role.DEFAULT}),
        uses_start=True,
        versions={"race": RACE_VERSION, "memetic": MEMETIC_STATE_VERSION},
    ),
    MethodSpec(
        name="brkga",
        kind=Kind.IMPROVING,
        summary="Biased random-key genetic algorithm over groups of units (Goncalves & Resende 2011).",
        build=Brkga,
        config=BrkgaConfig,
        ignores=("single units", "order"),
    ),
    MethodSpec(
        name="cem",
        kind=Kind.IMPROVING,
        summary="Cross-entropy minimization over groups of units (Post: Gao et al. 2018).",
        build=Cem,
        config=CemConfig,
        ignores=("single units", "order"),
    ),
    MethodSpec(
        name="colocrl",
        kind=Kind.LEARNED,
        summary="ColocRL: groups by co-location rules, placed by attention with REINFORCE (Mirhoseini et al. 2017).",
        build=ColocRlLearner,
        config=ColocRlConfig,
        ignores=("single units of a group",),
        uses_start=True,
        versions={"network": COLOCRL_NETWORK_VERSION, "features": FEATURES_VERSION},
    ),
    MethodSpec(
        name="cp_sat",
        kind=Kind.IMPROVING,
        summary="Constraint programming (CP-SAT): proves small programs, places stretches of large ones anew.",
        build=CpSat,
        config=CpSatConfig,
        ignores=("the simulator's order", "what devices do for messages", "peaks of memory"),
        uses_start=True,
    ),
    MethodSpec(
        name="cpu_only",
        kind=Kind.CONSTRUCTIVE,
        summary="Everything on the host's CPU (a column of Mirhoseini et al. 2017).",
        build=cpu_only,
        ignores=("everything",),
        goes_on=False,
    ),
    MethodSpec(
        name="expert",
        kind=Kind.CONSTRUCTIVE,
        summary="A layer a device, attention and softmax with the last, as experts do (Mirhoseini et al. 2017).",
        build=expert,
        ignores=("how long layers take", "messages", "peaks of memory"),
        roles=frozenset({Role.MEMBER}),
        goes_on=False,
    ),
    MethodSpec(
        name="go",
        kind=Kind.LEARNED,
        summary="GO: devices for all nodes at once, by GraphSAGE, attention and PPO (Zhou et al. 2020).",
        build=GoLearner,
        config=GoConfig,
        default=GoConfig(weights=SHIPPED),
        ignores=("what does not fit in its groups",),
        uses_start=True,
        versions={"network": GO_NETWORK_VERSION, "features": FEATURES_VERSION, "relative": RELATIVE_VERSION},
        student=GoStudent,
    ),
    MethodSpec(
        name="go_zero_shot",
        kind=Kind.CONSTRUCTIVE,
        summary="GO's policy as it was taught on other graphs, without rewards (Zhou et al. 2020, section 4.4).",
        build=go_zero_shot,
        config=GoZeroShotConfig,
        ignores=("single units of a group", "the simulator's order", "peaks of memory"),
        goes_on=False,
    ),
    MethodSpec(
        name="hdp",
        kind=Kind.LEARNED,
        summary="Hierarchical planner: Grouper and Placer trained with REINFORCE (Mirhoseini et al. 2018).",
        build=HdpLearner,
        config=HdpConfig,
        ignores=("what does not fit in its groups",),
        uses_start=True,
        versions={"network": HDP_NETWORK_VERSION, "features": FEATURES_VERSION},
    ),
    MethodSpec(
        name="heft",
        kind=Kind.CONSTRUCTIVE,
        summary="HEFT: by upward rank where each op ends first, gaps included (Topcuoglu, Hariri & Wu 2002).",
        build=heft,
        ignores=(
            "later ops of a unit",
            "messages that wait for each other",
            "what cores do for messages",
            "peaks of memory",
        ),
        roles=frozenset({Role.MEMBER}),
        goes_on=False,
    ),
    MethodSpec(
        name="learned_list",
        kind=Kind.IMPROVING,
        summary="A list scheduler; its rule was learned on other programs, and is searched for on this one.",
        build=LearnedList,
        config=LearnedListConfig,
        ignores=("single units of a group", "the simulator's order", "peaks of memory"),
        roles=frozenset({Role.MEMBER, Role.OPENING}),
        versions={"rules": RULES_VERSION},
        student=LearnedListStudent,
    ),
    MethodSpec(
        name="list_schedule",
        kind=Kind.CONSTRUCTIVE,
        summary="List schedule: each op in order of urgency where it ends first (HEFT: Topcuoglu, Hariri & Wu 2002).",
        build=list_schedule,
        ignores=("later ops of a unit", "what cores do for messages", "peaks of memory"),
        roles=frozenset({Role.BESIDE}),
        goes_on=False,
    ),
    MethodSpec(
        name="local_search",
        kind=Kind.IMPROVING,
        summary="Late acceptance: moves one connected piece of a plan at a time (Burke & Bykov 2017).",
        build=LocalSearch,
        config=LocalSearchConfig,
        build_inside=SimulatedLocalSearch,
        roles=frozenset({Role.PLAIN, Role.MEMBER}),
        uses_start=True,
    ),
    MethodSpec(
        name="m_etf",
        kind=Kind.CONSTRUCTIVE,
        summary="m-ETF: the op that can start first, where it can (Baechi: Jeon et al. 2020).",
        build=m_etf,
        ignores=(
            "how long an op takes there",
            "what waits for an op",
            "later ops of a unit",
            "what cores do for messages",
            "peaks of memory",
        ),
        roles=frozenset({Role.MEMBER}),
        goes_on=False,
    ),
    MethodSpec(
        name="m_sct",
        kind=Kind.CONSTRUCTIVE,
        summary="m-SCT: m-ETF with each op's favorite reader beside it, by a linear program (Jeon et al. 2020).",
        build=m_sct,
        config=MSctConfig,
        ignores=(
            "how many devices there are, in its program",
            "later ops of a unit",
            "what cores do for messages",
            "peaks of memory",
        ),
        goes_on=False,
    ),
    MethodSpec(
        name="m_topo",
        kind=Kind.CONSTRUCTIVE,
        summary="m-TOPO: a like share of memory for each device, in topological order (Baechi: Jeon et al. 2020).",
        build=m_topo,
        ignores=("messages", "what could run at the same moment", "peaks of memory"),
        goes_on=False,
    ),
    MethodSpec(
        name="mars",
        kind=Kind.LEARNED,
        summary="Mars: a graph encoder taught by contrast, a placer of segments, PPO (Lan et al. 2021).",
        build=MarsLearner,
        config=MarsConfig,
        ignores=("single units of a group",),
        uses_start=True,
        versions={
            "network": MARS_NETWORK_VERSION,
            "features": FEATURES_VERSION,
            "relative features": RELATIVE_VERSION,
        },
        student=MarsStudent,
    ),
    MethodSpec(
        name="memetic",
        kind=Kind.IMPROVING,
        summary="Late acceptance over groups, then finer ones, then units; chains cross over (Moscato 1989).",
        build=memetic,
        config=MemeticConfig,
        build_inside=SimulatedMemetic,
        roles=frozenset({Role.MEMBER, Role.LEAD}),
        uses_start=True,
        versions={"memetic": MEMETIC_STATE_VERSION},
    ),
    MethodSpec(
        name="metis",
        kind=Kind.CONSTRUCTIVE,
        summary="Min-cut parts of like work, one for each device (METIS: Karypis & Kumar 1998).",
        build=metis,
        ignores=("the order of ops", "latencies", "peaks of memory"),
        goes_on=False,
    ),
    MethodSpec(
        name="mincut",
        kind=Kind.CONSTRUCTIVE,
        summary="Scotch's mapping onto the accelerators alone (Pellegrini & Roman 1996).",
        build=mincut,
        ignores=("the order of ops", "latencies", "peaks of memory"),
        goes_on=False,
    ),
    MethodSpec(
        name="peft",
        kind=Kind.CONSTRUCTIVE,
        summary="PEFT: where an op's end and an optimistic rest of the step are least (Arabnejad & Barbosa 2014).",
        build=peft,
        ignores=(
            "later ops of a unit",
            "messages that wait for each other",
            "what cores do for messages",
            "peaks of memory",
        ),
        roles=frozenset({Role.MEMBER}),
        goes_on=False,
    ),
    MethodSpec(
        name="placeto",
        kind=Kind.LEARNED,
        summary="Placeto: a device for one group after the other, by message passing (Addanki et al. 2019).",
        build=PlacetoLearner,
        config=PlacetoConfig,
        ignores=("what does not fit in its groups",),
        uses_start=True,
        versions={"network": PLACETO_NETWORK_VERSION, "features": FEATURES_VERSION},
    ),
    MethodSpec(
        name="post",
        kind=Kind.LEARNED,
        summary="Post: a table of probabilities, cross-entropy minimization and PPO steps (Gao, Chen & Li 2018).",
        build=PostLearner,
        config=PostConfig,
        ignores=("single units", "order"),
        versions={"table": POST_TABLE_VERSION},
    ),
    MethodSpec(
        name="random",
        kind=Kind.IMPROVING,
        summary="Random search over block placements of every granularity.",
        build=RandomSearch,
        config=RandomSearchConfig,
        ignores=("everything but memory",),
        roles=frozenset({Role.CONTROL}),
    ),
    MethodSpec(
        name="regal",
        kind=Kind.IMPROVING,
        summary="REGAL: a genetic algorithm whose keys are drawn as a graph network says (Paliwal et al. 2020).",
        build=RegalLearner,
        config=RegalConfig,
        ignores=("single units", "order"),
        versions={"network": REGAL_NETWORK_VERSION, "features": FEATURES_VERSION},
    ),
    MethodSpec(
        name="scotch",
        kind=Kind.CONSTRUCTIVE,
        summary="Scotch's mapping onto all devices by their speed (Pellegrini & Roman 1996).",
        build=scotch,
        ignores=("the order of ops", "latencies", "peaks of memory"),
        goes_on=False,
    ),
    MethodSpec(
        name="single",
        kind=Kind.CONSTRUCTIVE,
        summary="Everything on one device, each in turn.",
        build=single_device_placements,
        ignores=("everything",),
        roles=frozenset({Role.REFERENCE, Role.BESIDE}),
        goes_on=False,
    ),
    MethodSpec(
        name="tabular",
        kind=Kind.LEARNED,
        summary="A table of logits over groups of units, without a network: REINFORCE (Williams 1992) or CEM.",
        build=TabularLearner,
        config=TabularConfig,
        ignores=("single units", "order"),
        uses_start=True,
        versions={"table": TABULAR_TABLE_VERSION},
    ),
    MethodSpec(
        name="tf_default",
        kind=Kind.CONSTRUCTIVE,
        summary="TensorFlow's own placer: the first GPU where there is a kernel, else the CPU (Abadi et al. 2016).",
        build=tf_default,
        ignores=("everything but kernels and colocation",),
        goes_on=False,
    ),
    MethodSpec(
        name="topological_fill",
        kind=Kind.CONSTRUCTIVE,
        summary="Devices filled in topological order, the fastest first, several ways (m-TOPO, Jeon et al. 2020).",
        build=topological_fill,
        ignores=("messages", "what could run at the same moment", "peaks of memory"),
        roles=frozenset({Role.BESIDE}),
        goes_on=False,
    ),
)
_METHODS: dict[str, MethodSpec] = {spec.name: spec for spec in SPECS}


def add(spec: MethodSpec, replace: bool = False) -> None:
    """Makes a method known to ``search(method=name)`` and to ``--method=name`` in this process.

    Args:
      spec: its row.
      replace: take the place of a method that was added before, as a notebook's cell does that is run again.

    Raises:
      InputError: the name is none, comes with tf_placer or has been added before.
    """
    if not isinstance(spec, MethodSpec):
        raise InputError(f"spec is {spec!r}; give a MethodSpec")
    check_registration("method", spec.name, spec.build, [one.name for one in SPECS])
    if spec.name in _METHODS and not replace:
        raise InputError(f"method {spec.name!r} is registered already; give another name, or replace=True")
    _METHODS[spec.name] = spec


def register(
    name: str, method: Method, *, uses_start: bool = False, goes_on: bool = False, replace: bool = False
) -> None:
    """Adds a method that yields rounds of its own and has no settings.

    Args:
      name: small letters, digits and ``_``.
      method: gives rounds (``tf_placer.search.Method``); the first line of its docstring describes it.
      uses_start, goes_on: see ``MethodSpec``.
      replace: see ``add``.

    Raises:
      InputError: as ``add``, or the method cannot be called or has no docstring.
    """
    check_registration("method", name, method, [one.name for one in SPECS])
    if not method.__doc__:
        raise InputError(f"method {name!r} has no docstring; `methods` shows its first line")
    add(dataclasses.replace(own_rounds(name, method), uses_start=uses_start, goes_on=goes_on), replace)


def own_rounds(name: str, method: Method) -> MethodSpec:
    """The row of a method that is given as a function."""
    summary = str(method.__doc__ or name).strip().splitlines()[0]
    return MethodSpec(name, Kind.OWN_ROUNDS, summary, lambda context, config: method(context))


def names() -> tuple[str, ...]:
    """Names of all methods, sorted."""
    return tuple(sorted(_METHODS))


def describe(name: str) -> str:
    """The first sentence about a method."""
    return find(name).summary


def find(name: str) -> MethodSpec:
    """The row of the method called ``name``.

    Raises:
      InputError: unknown name; the message gives the nearest ones.
    """
    check_name(name)
    return _METHODS[name]


def having(role: Role) -> tuple[MethodSpec, ...]:
    """The rows that have a role, in the order of the table."""
    return tuple(spec for spec in _METHODS.values() if role in spec.roles)


def the(role: Role) -> MethodSpec:
    """The one row that has a role."""
    (spec,) = having(role)
    return spec
