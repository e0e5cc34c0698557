"""`aquila checkpoints`: roll a stopped run back, or delete it."""

from pathlib import Path

import click

from aquila.cli.named_path import NamedPath


@click.command(short_help="List or roll back the checkpoints of a run.")
@click.argument("run", metavar="RUN_FOLDER", type=NamedPath(path_type=Path))
@click.option("--rollback", metavar="ROUND", type=int, help="Go back to the start of this round.")
@click.option("--start-over", is_flag=True, help="Delete the run, so that the next one starts.")
def checkpoints(run: Path, rollback: int | None, start_over: bool) -> None:
    """List the rounds that a stopped run can continue from, or change where it continues.

    RUN_FOLDER is the folder of `aquila run --out`, or the `out` folder of a server on Flower. After
    a rollback, resume the run as usual.
    """
    from aquila.sim.rollback import roll_back, saved_rounds
    from aquila.sim.rollback import start_over as delete_run

    if start_over and rollback is not None:
        raise ValueError("--rollback keeps a run and --start-over deletes it: give only one")
    if start_over:
        delete_run(run)
        click.echo(f"{run}: the run was deleted; the next run starts at round 0")
        return
    if rollback is not None:
        roll_back(run, rollback)
        click.echo(f"{run}: the run continues at round {rollback}")
        return
    saved = saved_rounds(run)
    newest = "no current checkpoint" if saved.current is None else f"continues at {saved.current}"
    earlier = ", ".join(map(str, saved.earlier)) or "none"
    click.echo(f"{run}: {newest}; earlier checkpoints: {earlier}")
