//! Compiles the protocol without `protoc`.

#![expect(
    clippy::disallowed_methods,
    reason = "a build script reads OUT_DIR and writes there"
)]

use prost::Message as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTOS: [&str; 4] = [
        "executor/v1/file.proto",
        "executor/v1/machine.proto",
        "executor/v1/process.proto",
        "executor/v1/session.proto",
    ];
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    let out = std::path::PathBuf::from(
        std::env::var_os("OUT_DIR").ok_or("OUT_DIR is set by cargo for build scripts")?,
    );
    std::fs::write(out.join("executor.v1.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".executor.v1.OutputPage.data")
        .bytes(".executor.v1.WriteStdinRequest.data")
        .bytes(".executor.v1.ReadLinesResponse.text")
        .bytes(".executor.v1.ReadBytesResponse.data")
        .bytes(".executor.v1.WriteFileRequest.data")
        .bytes(".executor.v1.WriteFileOpen.data")
        .compile_fds(descriptors)?;
    Ok(())
}
