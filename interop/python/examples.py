"""Runs python-ndn's own examples unchanged, from a checkout of its repository: no package of PyPI has them.

    target/interop/python/bin/python interop/python/examples.py CHECKOUT/examples

Examples that the folder lacks are skipped and named. Each scenario starts its producers, waits, runs its consumer, and
looks in the consumer's output for what a forwarder that works makes it print.
"""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import credentials
import outcome


@dataclasses.dataclass
class Scenario:
    name: str
    consumer: list
    expect: str
    producers: list = dataclasses.field(default_factory=list)
    # Runs for ever: seconds after which it is ended, its output judged then.
    ends_after: float = 0
    # Seconds that a producer needs until its prefixes are registered.
    settle: float = 1.5
    # What in the first line of the producer's output is {printed} in the consumer's arguments.
    printed: str = ""


def scenarios(home):
    text = os.path.join(home, "text")
    with open(text, "w") as file:
        file.write("line of text\n" * 2000)
    hello = re.escape("b'Hello, world!'")
    return [
        Scenario("basic", ["consumer.py"], hello, [["producer.py"]]),
        Scenario("basic, v2", ["appv2/basic_packets/consumer.py"], hello, [["appv2/basic_packets/producer.py"]]),
        Scenario("forwarding hint, v2", ["appv2/forwarding_hint/consumer.py"], f"{hello}(?s:.*){hello}",
                 [["appv2/forwarding_hint/producer.py"]]),
        Scenario("certificates, v2", ["appv2/keychain_cert/fetch_certificate.py", "{key}"], "Received Data Name: {key}",
                 [["appv2/keychain_cert/keychain_register.py"]]),
        # putchunks registers the name with its version, so only that name finds it.
        Scenario("segments", ["catchunks.py", "{printed}"], "6 segments fetched", [["putchunks.py", "/example/chunks", text]],
                 printed=r"under name (\S+)"),
        Scenario("remote procedure", ["rpc_consumer.py", "1", "2", "39"], re.escape("b'42'"), [["rpc_producer.py"]]),
        # 0.5.2 names the certificate in what it signs, where this example's rule wants the key: that Data came must do.
        Scenario("schema tree", ["rdrnode.py", "some"], "Content size: 26000|ValidationFailure", [["rdrnode.py", "some", text]], ends_after=4, settle=2),
        Scenario("light VerSec", ["lvs/consumer.py"], "Hello,(?s:.*)world!", [["lvs/producer.py"]], settle=2.5),
        Scenario("State Vector Sync, v2", ["appv2/svs/sync_example.py"], r"Fetched /node-\w+/example/testSvs/seq=\d+: ",
                 [["appv2/svs/sync_example.py"]], ends_after=14),
        Scenario("status", ["nfd_status.py"], "'nfd_version': '", ends_after=3),
        Scenario("Interest that nobody answers", ["express_interest.py"], "(Nacked with 150|Timed out)(?s:.*)Finished", ends_after=4),
    ]


# They need NDN-DPDK's own management, which is GraphQL over HTTP.
LEFT_OUT = ["dpdk_experimental/udp_consumer.py", "dpdk_experimental/udp_producer.py"]


def start(folder, command, values):
    path = os.path.join(folder, command[0])
    arguments = [argument.format(**values) for argument in command[1:]]
    return subprocess.Popen([sys.executable, "-u", path, *arguments], cwd=os.path.dirname(path),
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def stop(process):
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.communicate()[0]


def run(folder, scenario, values):
    producers = [start(folder, command, values) for command in scenario.producers]
    try:
        time.sleep(scenario.settle if producers else 0)
        if scenario.printed:
            values = {**values, "printed": re.search(scenario.printed, producers[0].stdout.readline()).group(1)}
        consumer = start(folder, scenario.consumer, values)
        try:
            output = consumer.communicate(timeout=scenario.ends_after or 15)[0]
        except subprocess.TimeoutExpired:
            output = stop(consumer)
    finally:
        said = [stop(producer) for producer in producers]
    found = re.search(scenario.expect.format(**values) if "{key}" in scenario.expect else scenario.expect, output)
    if found:
        return None
    return {"scenario": scenario.name, "printed": output[-1500:], "producers": [text[-500:] for text in said]}


def own_key():
    from ndn import appv2
    from ndn.encoding import Name

    return Name.to_str(appv2.NDNApp.default_keychain().default_identity().default_key().name)


def main():
    parser = outcome.arguments(__doc__)
    parser.add_argument("folder")
    parser.add_argument("--only", help="scenarios whose name has this")
    args = parser.parse_args()
    ran, skipped, failed = [], [], []
    with tempfile.TemporaryDirectory() as home:
        # The schema tree's example wants an identity of one component.
        credentials.keychain_home(home, "/examples")
        values = {"key": own_key()}
        for scenario in scenarios(home):
            if args.only and args.only not in scenario.name:
                continue
            if any(not os.path.exists(os.path.join(args.folder, command[0])) for command in [scenario.consumer, *scenario.producers]):
                skipped.append(scenario.name)
                continue
            problem = run(args.folder, scenario, values)
            ran.append(scenario.name)
            if problem:
                failed.append(problem)
    outcome.finish(not failed and bool(ran), ran=ran, skipped=skipped, left_out=LEFT_OUT, failed=failed)


if __name__ == "__main__":
    main()
