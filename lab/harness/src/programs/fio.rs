//! fio with checksums in every block, read back and verified: 8 jobs in one file at disjoint
//! offsets, and 8 jobs in a file each.

use super::Work;
use crate::run;
use crate::tools;
use anyhow::{Context, Result, ensure};

pub(super) fn run(work: &Work<'_>) -> Result<String> {
    let mib = work.size.fio_mib;
    let one = work.dir.join("one");
    verify(
        work,
        &[
            "--name=one".into(),
            format!("--filename={}", one.display()),
            format!("--offset_increment={mib}M"),
        ],
    )?;
    verify(
        work,
        &[
            "--name=each".into(),
            format!("--directory={}", work.dir.display()),
        ],
    )?;
    ensure!(
        one.metadata()?.len() == 8 * (mib << 20),
        "fio's one file has the wrong size"
    );
    Ok(format!("verified 2 x 8 x {mib} MiB"))
}

fn verify(work: &Work<'_>, own: &[String]) -> Result<()> {
    let size = format!("--size={}M", work.size.fio_mib);
    let seed = format!("--randseed={}", work.seed);
    let common = [
        "--numjobs=8",
        &size,
        &seed,
        "--rw=randwrite",
        "--bs=8k",
        "--verify=crc32c",
        "--do_verify=1",
        "--verify_fatal=1",
        "--ioengine=psync",
        "--fallocate=none",
        "--group_reporting",
        "--output-format=json",
    ];
    let mut command = run::cmd(tools::program("fio"), common);
    // fio keeps its verification state in the current directory.
    let output = run::ok(command.args(own).current_dir(work.scratch))?;
    let json = output
        .stdout
        .find('{')
        .map_or("", |at| &output.stdout[at..]);
    let report: serde_json::Value = serde_json::from_str(json)
        .with_context(|| format!("fio said:\n{}", run::tail(&output.both())))?;
    let job = &report["jobs"][0];
    let (error, written) = (job["error"].as_i64(), job["write"]["io_bytes"].as_u64());
    let read = job["read"]["io_bytes"].as_u64();
    let expected = Some(8 * (work.size.fio_mib << 20));
    ensure!(error == Some(0), "fio: error {error:?}");
    ensure!(
        written == expected,
        "fio wrote {written:?} bytes instead of {expected:?}"
    );
    ensure!(
        read == expected,
        "fio verified {read:?} bytes instead of {expected:?}"
    );
    Ok(())
}
