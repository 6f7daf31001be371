"""Units shared fractionally among devices: a bound that knows streams and memory, and nothing of order."""

from __future__ import annotations

import numpy as np
import scipy.optimize
import scipy.sparse

_CLASSES = 256


def shared_work_ns(
    work: np.ndarray,
    streams: np.ndarray,
    resident: np.ndarray | None = None,
    capacity: np.ndarray | None = None,
) -> float:
    """A lower bound on the least T at which units can be shared among the devices.

    min T with sum_u x_ud work_ud <= T streams_d, sum_u x_ud resident_u <= capacity_d, sum_d x_ud = 1 and x >= 0.

    For any w, m >= 0 with sum_d w_d streams_d = 1, weak duality gives
    T >= sum_u min_d (w_d work_ud + m_d resident_u) - sum_d m_d capacity_d. So w and m may come from anywhere: here
    they are the dual of the same problem with like units joined (HiGHS), and the sum is over all units.

    Args:
      work: [U, D] float64 time of each unit, infinite where it cannot be.
      streams: [D] of each device.
      resident: [U] bytes of each unit; None for no limit of memory.
      capacity: [D] bytes of each device.

    Returns:
      Nanoseconds; as without memory where nothing fits.
    """
    units, devices = work.shape
    if not units:
        return 0.0
    sizes = np.zeros(units) if resident is None else resident.astype(np.float64)
    room = np.full(devices, np.inf) if capacity is None else capacity.astype(np.float64)
    if sizes.sum() <= room.min():
        sizes, room = np.zeros(units), np.zeros(devices)  # memory binds nothing
    weight, price = _prices(work, streams.astype(np.float64), sizes, room)
    total = weight @ streams
    if total <= 0:
        return 0.0
    each = np.where(
        np.isfinite(work),
        np.where(np.isfinite(work), work, 0) * weight + sizes[:, np.newaxis] * price,
        np.inf,
    )
    least = each.min(axis=1)
    # Off by one part in 10^9 of what is added up, for the rounding of the float sums.
    slip = 1e-9 * (np.abs(least).sum() + price @ room)
    return max(float((least.sum() - price @ room - slip) / total), 0.0)


def _prices(
    work: np.ndarray, streams: np.ndarray, sizes: np.ndarray, room: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[D] prices of time and [D] of bytes, all >= 0: the dual of the problem between classes of units."""
    work, sizes, streams_of = *_classes(work, sizes), streams
    classes, devices = work.shape
    time_scale, byte_scale = max(work[np.isfinite(work)].sum(), 1.0), max(sizes.sum(), 1.0)
    may = np.isfinite(work)
    unit, device = np.nonzero(may)
    columns = np.arange(len(unit))
    at_device = lambda values: scipy.sparse.coo_matrix((values, (device, columns)), (devices, len(unit)))  # noqa: E731
    upper = scipy.sparse.vstack(
        [
            scipy.sparse.hstack([at_device(work[may] / time_scale), -streams_of[:, np.newaxis]]),
            scipy.sparse.hstack([at_device(sizes[unit] / byte_scale), np.zeros((devices, 1))]),
        ]
    )
    once = scipy.sparse.hstack(
        [
            scipy.sparse.coo_matrix((np.ones(len(unit)), (unit, columns)), (classes, len(unit))),
            np.zeros((classes, 1)),
        ]
    )
    solved = scipy.optimize.linprog(
        np.append(np.zeros(len(unit)), 1.0),
        A_ub=upper.tocsr(),
        b_ub=np.concatenate([np.zeros(devices), room / byte_scale]),
        A_eq=once.tocsr(),
        b_eq=np.ones(classes),
        method="highs",
    )
    if not solved.success:
        return np.ones(devices), np.zeros(devices)
    dual = np.maximum(-solved.ineqlin.marginals, 0.0)
    return dual[:devices], dual[devices:] * time_scale / byte_scale


def _classes(work: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of work [K, D] and of bytes [K] over like units: of the same devices, and of like ratios."""
    finite = np.isfinite(work)
    masks, kind = np.unique(finite, axis=0, return_inverse=True)
    amount = np.where(finite, work, 0)
    share = amount / np.maximum(amount.sum(axis=1, keepdims=True), 1e-30)
    density = sizes / np.maximum(amount.sum(axis=1), 1.0)
    order = np.lexsort((density, *np.round(share, 2).T, kind.ravel()))
    kinds = kind.ravel()[order]
    # As many classes as there may be, none across two kinds.
    block = np.arange(len(order)) * max(_CLASSES - len(masks), 1) // len(order)
    cuts = np.flatnonzero((np.diff(block) != 0) | (np.diff(kinds) != 0)) + 1
    starts = np.concatenate([[0], cuts])
    joined = np.add.reduceat(amount[order], starts, axis=0)
    return np.where(masks[kinds[starts]], joined, np.inf), np.add.reduceat(sizes[order], starts)
