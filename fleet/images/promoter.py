"""Apply the promotions of a plan during a run; this module implements the port Promoter."""

from datetime import datetime

from fleet.errors import PromotionRefused, VersionMoved
from fleet.images.promote import promote, retire
from fleet.model.images import Move
from fleet.model.plan import Plan, Promotion
from fleet.ports import Tell
from fleet.state.store import Store
from fleet.words.runs import add_reason


def promote_all(
    plan: Plan, store: Store, now: datetime, note: Tell, tell: Tell
) -> tuple[str, ...]:
    """Apply promotions and return the successful ones. The next run retries the others."""
    done = []
    for each in plan.promotions:
        said = f"image {each.image}: {each.verb} {each.version}"
        try:
            moves = _moves(each, store, now)
            note(said)
            store.move_image_versions(moves)
        except (PromotionRefused, VersionMoved) as trouble:
            tell(f"{said} failed: {trouble}")
        else:
            tell(add_reason(said, each.because))
            done.append(f"{each.image} {each.version}")
    return tuple(done)


def _moves(step: Promotion, store: Store, now: datetime) -> tuple[Move, ...]:
    versions = [each for each in store.image_versions() if each.image == step.image]
    wanted = next(
        (each for each in versions if (each.version, each.state) == (step.version, step.was)),
        None,
    )
    if wanted is None:
        raise VersionMoved(f"image {step.image} {step.version} is no longer {step.was}")
    if step.now == "retired":
        return retire(wanted, now, step.because)
    return promote(versions, wanted, now, share=step.share or None)
