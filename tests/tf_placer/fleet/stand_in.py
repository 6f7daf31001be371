"""Stand-in for the few calls of Ray that a fleet uses: actors in this process, whose answers come when a test says."""

import itertools
import types


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class RayActorError(RayError):
    pass


class Reference:
    """Of an answer: it is there when ``value`` is set."""

    def __init__(self):
        self.value = None


class Actor:
    """One actor: its machine answers at once, unless ``fate`` says what becomes of a call.

    ``fate(actor, method, number)`` -> ``"die"`` (the actor, before it does anything), ``"die late"`` (after it has),
    ``"lose"`` (no answer comes, but an error with the next kill), ``"late"`` (the answer comes with the kill),
    ``"hold"`` (with ``release``), None.
    """

    def __init__(self, ray, make, fate=lambda actor, method, number: None):
        self.ray, self.make, self.fate = ray, make, fate
        self.machine = make()
        self.numbers = itertools.count()
        self.late, self.held = [], []
        self.done, self.kills = [], 0

    def __getattr__(self, name):
        return types.SimpleNamespace(remote=lambda *arguments: self._call(name, arguments))

    def _call(self, name, arguments):
        reference = Reference()
        fate = self.fate(self, name, next(self.numbers))
        value = None
        if fate != "die":
            value = getattr(self.machine, name)(*arguments)
            self.done.append((name, arguments))
        if fate in ("die", "die late"):
            self.machine, value = self.make(), RayActorError("the actor died")
        if fate == "hold":
            self.held.append((reference, value))
        elif fate in ("late", "lose"):
            self.late.append((reference, value if fate == "late" else RayActorError("the actor was killed")))
        else:
            reference.value = (value,)
        return reference

    def release(self):
        for reference, value in self.held:
            reference.value = (value,)


class Ray:
    exceptions = types.SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, RayActorError=RayActorError
    )

    def __init__(self):
        self.now_s = 0.0
        self.stored = []
        self.ended = []

    def clock(self):
        """Seconds that pass while somebody waits, and then alone."""
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds

    def put(self, value):
        self.stored.append(value)
        return value

    def get(self, reference):
        assert reference.value is not None, "only what wait has found ready is asked for"
        (value,) = reference.value
        if isinstance(value, Exception):
            raise value
        return value

    def wait(self, references, num_returns, timeout):
        ready = [one for one in references if one.value is not None][:num_returns]
        self.now_s += timeout if not ready else 1e-3
        return ready, [one for one in references if one not in ready]

    def kill(self, actor, no_restart=True):
        actor.kills += 1
        for reference, value in actor.late:
            reference.value = (value,)
        actor.late.clear()
        if no_restart:
            self.ended.append(actor)
