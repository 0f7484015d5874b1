"""Starts, streams, types into and stops commands over executor.v1."""

import base64
import secrets
import sys
import time

import grpc
from executor.v1 import machine_pb2, machine_pb2_grpc, process_pb2, process_pb2_grpc
from executor.v1 import session_pb2, session_pb2_grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)


def new_id(prefix):
    return prefix + base64.b32encode(secrets.token_bytes(20)).decode().lower()[:26]


def now():
    stamp = Timestamp()
    stamp.FromNanoseconds(time.time_ns())
    return stamp


socket, work = sys.argv[1:]
# Without this, grpcio names the socket's path as the authority, which is not
# one by RFC 3986, and HTTP/2 servers refuse it.
options = [("grpc.default_authority", "localhost")]
channel = grpc.insecure_channel(f"unix:{socket}", options=options)
machine = machine_pb2_grpc.MachineServiceStub(channel).GetMachine(machine_pb2.GetMachineRequest())
assert machine.machine.machine_id.startswith("mch_"), machine
health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
assert health.status == health_pb2.HealthCheckResponse.SERVING
services = ProtoReflectionDescriptorDatabase(channel).get_services()
assert "executor.v1.ProcessService" in services, services

secret = secrets.token_hex(32)
sessions = session_pb2_grpc.SessionServiceStub(channel)
session = sessions.OpenSession(
    session_pb2.OpenSessionRequest(session_id=new_id("ses_"), working_directory=work.encode()),
    metadata=[("executor-secret", secret)],
).session
bound = [
    ("executor-session", session.session_id),
    ("executor-secret", secret),
    ("executor-epoch", session.epoch),
]
processes = process_pb2_grpc.ProcessServiceStub(channel)


def start(text, **more):
    return processes.StartProcess(
        process_pb2.StartProcessRequest(
            process_id=new_id("prc_"),
            created_at=now(),
            shell=process_pb2.ShellCommand(text=text.encode()),
            **more,
        ),
        metadata=bound,
    )


# A short command: exit and output in one reply.
done = start("echo out; exit 3", wait=Duration(seconds=30))
assert done.process.exit.code == 3 and done.output.data == b"out\n", done

# Follow output while typing.
cat = start("cat", pipe=process_pb2.PipeIo(stdin=process_pb2.STDIN_PIPE)).process
opened = process_pb2.StreamOutputRequest(
    open=process_pb2.StreamOutputOpen(process_id=cat.process_id)
)
stream = processes.StreamOutput(iter([opened]), metadata=bound)
for offset, data in ((0, b"one\n"), (4, b"two\n"), (4, b"two\n")):
    processes.WriteStdin(
        process_pb2.WriteStdinRequest(
            process_id=cat.process_id, writer_id="w", offset=offset, data=data
        ),
        metadata=bound,
    )
processes.WriteStdin(
    process_pb2.WriteStdinRequest(process_id=cat.process_id, writer_id="w", offset=8, close=True),
    metadata=bound,
)
messages = list(stream)
assert b"".join(m.page.data for m in messages) == b"one\ntwo\n", messages
assert [m.exit.code for m in messages if m.HasField("exit")] == [0], messages
assert messages[-1].output_ended

# Stop a tree.
sleeper = start("sleep 600 & sleep 600").process
stopped = processes.StopProcess(
    process_pb2.StopProcessRequest(process_id=sleeper.process_id), metadata=bound
)
assert not stopped.survivors and stopped.process.state == process_pb2.PROCESS_STATE_KILLED

# Errors carry a reason.
try:
    processes.GetProcess(
        process_pb2.GetProcessRequest(process_id=new_id("prc_")), metadata=bound
    )
    raise SystemExit("an unknown process was found")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.NOT_FOUND, error
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    assert b"PROCESS_NOT_FOUND" in details, details

sessions.EndSession(session_pb2.EndSessionRequest(), metadata=bound)
print("all held")
