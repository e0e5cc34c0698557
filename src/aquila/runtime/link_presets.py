"""Presets of links, with the source of every number. Importing it does not import torch.

Each source begins with what the number is:

    measured    a value that a publication reports from measurements
    data sheet  a typical value of a part
    standard    a value that a standard or a regulation states
    nominal     a plausible value for this kind of device; replace it by your own

docs/links.md shows the table.
"""

from dataclasses import dataclass

from aquila.core.link import DeviceLink

KBIT, MBIT = 1e3, 1e6

HUANG = (
    "Huang et al., A Close Examination of Performance and Power Characteristics of 4G LTE "
    "Networks, MobiSys 2012"
)
LORAWAN = "LoRaWAN Regional Parameters, EU863-870, data rate 5"
SARA_N2 = "u-blox SARA-N2 data sheet"
SX1276 = "Semtech SX1276 data sheet"
OWN_COMPUTE_TIME = "nominal: depends on model and data; set compute_time"


@dataclass(frozen=True)
class LinkPreset:
    """A link and the source of each of its numbers, by field."""

    link: DeviceLink
    sources: dict[str, str]


PRESETS: dict[str, LinkPreset] = {
    "lora": LinkPreset(
        DeviceLink(
            uplink_rate=5.47 * KBIT, downlink_rate=5.47 * KBIT, latency=1.0, jitter=0.1,
            compute_time=10.0, transmit_power=0.0957, receive_power=0.0356, compute_power=0.03,
            duty_cycle=0.01, snr_db=-5.0,
        ),
        {
            "uplink_rate": f"standard: {LORAWAN}, spreading factor 7 at 125 kHz, 5470 bit/s",
            "downlink_rate": f"standard: {LORAWAN}; the duty cycle of the gateway is left out",
            "latency": "nominal: the usual delay of LoRaWAN's first receive window, 1 s",
            "jitter": "nominal: a tenth of the latency",
            "compute_time": OWN_COMPUTE_TIME,
            "transmit_power": "nominal: 29 mA at 13 dBm for a radio like the SX1276, times 3.3 V",
            "receive_power": f"data sheet: {SX1276}, 10.8 mA, times 3.3 V",
            "compute_power": "nominal: a microcontroller of about 10 mA at 3 V",
            "duty_cycle": "standard: ETSI EN 300 220, 865-868 MHz, 1 %",
            "snr_db": "nominal: a demodulator limit of -7.5 dB, plus a margin of 2.5 dB",
        },
    ),
    "nb_iot": LinkPreset(
        DeviceLink(
            uplink_rate=62.5 * KBIT, downlink_rate=26 * KBIT, latency=0.8, jitter=0.2,
            compute_time=10.0, transmit_power=0.792, receive_power=0.166, compute_power=0.03,
            snr_db=5.0,
        ),
        {
            "uplink_rate": "nominal: 3GPP Release 13, category NB1, multi-tone with scheduling",
            "downlink_rate": "standard: 3GPP Release 13, category NB1, with scheduling",
            "latency": "nominal: half of 1.6 s; 3GPP TR 45.820 demands at most 10 s per report",
            "jitter": "nominal: a quarter of the latency",
            "compute_time": OWN_COMPUTE_TIME,
            "transmit_power": f"data sheet: {SARA_N2}, 220 mA at 23 dBm, times 3.6 V",
            "receive_power": f"data sheet: {SARA_N2}, 46 mA, times 3.6 V",
            "compute_power": "nominal: a microcontroller of about 10 mA at 3 V",
            "snr_db": "nominal: normal coverage without repetitions",
        },
    ),
    "3g": LinkPreset(
        DeviceLink(
            uplink_rate=1 * MBIT, downlink_rate=3 * MBIT, latency=0.075, jitter=0.025,
            compute_time=1.0, transmit_power=1.687, receive_power=1.184, compute_power=2.0,
            snr_db=10.0,
        ),
        {
            "uplink_rate": "nominal: below the 5.76 Mbit/s peak of HSUPA, 3GPP Release 6",
            "downlink_rate": "nominal: below the 14.4 Mbit/s peak of HSDPA, 3GPP Release 5",
            "latency": "nominal: half of a round trip of 150 ms",
            "jitter": "nominal: a third of the latency",
            "compute_time": OWN_COMPUTE_TIME,
            "transmit_power": f"nominal: 817.88 mW + 868.98 mW per Mbit/s, model of {HUANG}",
            "receive_power": f"nominal: 817.88 mW + 122.12 mW per Mbit/s, model of {HUANG}",
            "compute_power": "nominal: the processor of a phone under load",
            "snr_db": "nominal: medium coverage",
        },
    ),
    "lte": LinkPreset(
        DeviceLink(
            uplink_rate=6 * MBIT, downlink_rate=13 * MBIT, latency=0.035, jitter=0.01,
            compute_time=1.0, transmit_power=3.918, receive_power=1.964, compute_power=2.0,
            snr_db=10.0,
        ),
        {
            "uplink_rate": f"measured: median of {HUANG}",
            "downlink_rate": f"measured: median of {HUANG}",
            "latency": "nominal: half of a round trip of 70 ms",
            "jitter": "nominal: about a third of the latency",
            "compute_time": OWN_COMPUTE_TIME,
            "transmit_power": f"nominal: 1288.04 mW + 438.39 mW per Mbit/s, model of {HUANG}",
            "receive_power": f"nominal: 1288.04 mW + 51.97 mW per Mbit/s, model of {HUANG}",
            "compute_power": "nominal: the processor of a phone under load",
            "snr_db": "nominal: medium coverage",
        },
    ),
    "wifi": LinkPreset(
        DeviceLink(
            uplink_rate=30 * MBIT, downlink_rate=30 * MBIT, latency=0.005, jitter=0.005,
            compute_time=1.0, transmit_power=0.594, receive_power=0.33, compute_power=2.0,
            snr_db=20.0,
        ),
        {
            "uplink_rate": "nominal: under half of the 72.2 Mbit/s of IEEE 802.11n, one stream",
            "downlink_rate": "nominal: under half of the 72.2 Mbit/s of IEEE 802.11n, one stream",
            "latency": "nominal: half of a round trip of 10 ms",
            "jitter": "nominal: as long as the latency",
            "compute_time": OWN_COMPUTE_TIME,
            "transmit_power": "nominal: 180 mA for a radio like the ESP32 at MCS 7, times 3.3 V",
            "receive_power": "nominal: 100 mA for a radio like the ESP32, times 3.3 V",
            "compute_power": "nominal: the processor of a phone under load",
            "snr_db": "nominal: the same room",
        },
    ),
}  # fmt: skip
"""Links of one kind of device, by name."""

MIXED = "mixed"
MIXED_SHARES = {"nb_iot": 0.1, "3g": 0.2, "lte": 0.4, "wifi": 0.3}
"""Shares of the kinds of devices in a mixed fleet. Nominal: an assumption, not a statistic."""

PRESET_NAMES = (*PRESETS, MIXED)
