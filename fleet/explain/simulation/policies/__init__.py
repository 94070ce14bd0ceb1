"""What decides in a simulation: fleet, or what others do, as their documentation and code say.

A policy of others answers what it wants of each pool; `scaling` carries that out with fleet's own
drafts of pools, so that names, prices, boots and deletions are the same for all. What differs is
what a file here says, with its source. Each is told in its favour where it is told in part.
"""

from collections.abc import Mapping

from fleet.explain.simulation.policies.debusine import debusine
from fleet.explain.simulation.policies.first_fit import first_fit
from fleet.explain.simulation.policies.fixed import fixed
from fleet.explain.simulation.policies.nodepool import nodepool
from fleet.explain.simulation.policies.policy import Policy, ours
from fleet.explain.simulation.policies.resalloc import resalloc
from fleet.explain.simulation.policies.scaling import scaled
from fleet.explain.simulation.policies.taskcluster import taskcluster

POLICIES: Mapping[str, Policy] = {
    "fleet": ours,
    "fixed": scaled(fixed),
    "resalloc": scaled(resalloc),
    "taskcluster": scaled(taskcluster),
    "debusine": scaled(debusine, idle_after=600),
    "nodepool": scaled(nodepool),
    "first-fit": scaled(first_fit, idle_after=1),
}
