"""`aquila export`: write the model of a run as a state dict."""

from pathlib import Path

import click

from aquila.cli.named_path import NamedPath


@click.command()
@click.argument("run", metavar="RUN_FOLDER", type=NamedPath(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    type=NamedPath(dir_okay=False, path_type=Path),
    help="File to write: .safetensors, or .pt for torch.load.",
)
@click.option("--checkpoint", is_flag=True, help="Export the model of the checkpoint.")
@click.option("--best", is_flag=True, help="Export the model with the best main metric.")
def export(run: Path, output: Path, checkpoint: bool, best: bool) -> None:
    """Write the trained model of a run to a file.

    The file has the state dict of the module in eval mode, batch norm statistics included. Without
    --checkpoint and --best it is the newest model of the run.
    """
    from aquila.sim.export import Source, export_model

    if checkpoint and best:
        raise ValueError("--checkpoint and --best name two models: give only one")
    source: Source = "checkpoint" if checkpoint else "best" if best else "newest"
    metadata = export_model(run, source, output)
    shown = [metadata["method"]] if "method" in metadata else []
    shown += [f"after {int(metadata['round']) + 1} rounds"] if "round" in metadata else []
    if "metric" in metadata:
        shown.append(f"{metadata['metric']} {float(metadata['value']):.4g}")
    click.echo(f"{output}: {', '.join(shown)}")
