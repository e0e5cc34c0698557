"""Advice as JSON for scripts."""

from dataclasses import asdict

from aquila.advice.advise import Advice
from aquila.advice.candidate import Candidate
from aquila.advice.expectation import Expectation


def to_dict(advice: Advice) -> dict[str, object]:
    """Return the advice as a JSON object."""
    situation, match = advice.situation, advice.choice.match
    network = situation.network
    return {
        "situation": {
            "model": situation.model, "data": situation.data, "parameters": situation.parameters,
            "devices": situation.devices, "split": situation.split, "rounds": situation.rounds,
            "participation": situation.participation, "max_mb": situation.max_mb,
            "max_hours": situation.max_hours, "tolerance": situation.tolerance,
            "link": network.model.name if network else "",
        },
        "choice": {**_candidate_dict(advice.choice), "alpha": advice.alpha},
        "runner_up": advice.runner_up and _candidate_dict(advice.runner_up),
        "dense": _cost_dict(advice.dense),
        "relayed_down_bytes_per_device": advice.relayed_down and round(advice.relayed_down),
        "settings": dict(match.study.settings),
        "source": match.study.source,
        "differences": list(match.differences),
        "sureness": advice.sureness,
        "fits": advice.fits,
        "trials": [asdict(trial) for trial in advice.trials],
    }  # fmt: skip


def _candidate_dict(candidate: Candidate) -> dict[str, object]:
    result = candidate.result
    return {
        "method": result.method,
        "options": dict(result.options),
        "downlink_error": candidate.downlink.error,
        "relay_uploads": candidate.downlink.relays,
        "quality_gap": candidate.gap,
        "up_bytes_per_parameter": result.up,
        "down_bytes_per_parameter": candidate.downlink.down,
        **_cost_dict(candidate.expected),
    }


def _cost_dict(expected: Expectation) -> dict[str, object]:
    return {
        "up_bytes_per_device": round(expected.up),
        "down_bytes_per_device": round(expected.down),
        "up_bytes": round(expected.up * expected.devices),
        "down_bytes": round(expected.down * expected.devices),
        "seconds": expected.seconds,
        "joules": expected.joules,
    }
