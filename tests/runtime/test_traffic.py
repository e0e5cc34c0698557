"""Costs are lengths of frames, summed per device; lost frames count too."""

import torch

import aquila
from aquila.core.packet import Dense, Packet
from aquila.core.wire import pack
from aquila.runtime.options import RunOptions
from aquila.runtime.traffic import Cost, Traffic, cost_of, total_cost
from helpers.problems import ridge


def test_cost_of_a_frame_is_its_length():
    frame = pack(Packet(3, Dense(torch.ones(100)), {"loss": 1.0}))
    cost = cost_of(frame)
    assert cost.bytes == len(frame)
    assert cost.body_bytes == 400
    assert cost.paper_bits == 3200


def test_skip_costs_bytes_but_no_paper_bits():
    cost = cost_of(pack(Packet(3)))
    assert cost.paper_bits == cost.body_bytes == 0
    assert 0 < cost.bytes <= 64


def test_traffic_adds_up_per_device():
    traffic = Traffic()
    traffic.add_uplink(1, Cost(10, 100, 800))
    traffic.add_uplink(1, Cost(10, 0, 0))
    traffic.add_uplink(2, Cost(10, 50, 400))
    traffic.add_downlink(2, Cost(5, 5, 40))
    assert traffic.uplink[1] == Cost(20, 100, 800)
    assert total_cost(traffic.uplink) == Cost(30, 150, 1200)
    assert total_cost(traffic.downlink).bytes == 10


def test_records_count_lost_frames_too():
    problem = ridge(devices=4, dimension=10)
    run = aquila.Simulation(
        aquila.create("fedsgd", alpha=0.01),
        torch.zeros(10),
        problem.devices,
        options=RunOptions(uplink_loss=1.0),
    )
    replies = []
    for session in run.devices:
        answer = session.answer
        session.answer = lambda order, answer=answer: replies.append(answer(order)) or replies[-1]
    orders = run.server.open_round()
    record = run.advance()
    assert record.uplink_bytes == sum(len(pack(reply)) for reply in replies)
    assert record.downlink_bytes == sum(len(o.model) + len(o.control) for o in orders.values())
    assert record.lost == 4
    assert record.uploads == 0
    assert record.paper_bits == 4 * 32 * 10
