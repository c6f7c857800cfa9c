//! sqlite3: four processes write to one database, in rollback and in WAL mode, while its own
//! integrity check runs beside them and once more at the end.

use super::Work;
use crate::run;
use crate::tools;
use anyhow::{Result, ensure};
use std::path::Path;
use std::time::Duration;

const WRITERS: usize = 4;

pub(super) fn run(work: &Work<'_>) -> Result<String> {
    for journal in ["delete", "wal"] {
        let database = work.dir.join(format!("{journal}.db"));
        one(&database, journal, work.size.sqlite_transactions)?;
    }
    Ok(format!(
        "2 x {WRITERS} writers, {} transactions each",
        work.size.sqlite_transactions
    ))
}

fn one(database: &Path, journal: &str, transactions: usize) -> Result<()> {
    let setup = format!(
        "pragma journal_mode={journal};\n\
         create table t(writer int, number int, data blob, primary key(writer, number));\n\
         create index by_number on t(number);\n"
    );
    sql(database, &setup)?;
    std::thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let mut script = String::new();
                    for number in 0..transactions {
                        script.push_str(&format!(
                            "begin immediate; \
                             insert into t values({writer}, {number}, randomblob({})); \
                             update t set data = randomblob(900) where number = {}; commit;\n",
                            100 + number * 37 % 3000,
                            number / 2,
                        ));
                    }
                    sql(database, &script)
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            check(database)?;
            std::thread::sleep(Duration::from_millis(100));
        }
        for writer in writers {
            writer
                .join()
                .map_err(|_| anyhow::anyhow!("a writer thread panicked"))??;
        }
        Ok(())
    })?;
    check(database)?;
    let rows = sql(database, "select count(*) from t;")?;
    let expected = (WRITERS * transactions).to_string();
    ensure!(
        rows.trim() == expected,
        "{} rows instead of {expected}",
        rows.trim()
    );
    Ok(())
}

fn check(database: &Path) -> Result<()> {
    let verdict = sql(database, "pragma integrity_check;")?;
    ensure!(
        verdict.trim() == "ok",
        "integrity_check: {}",
        run::tail(&verdict)
    );
    Ok(())
}

fn sql(database: &Path, script: &str) -> Result<String> {
    let script = format!(".bail on\n.timeout 120000\n{script}");
    let mut command = run::cmd(tools::program("sqlite3"), ["-batch"]);
    let output = run::capture_with(
        command.arg(database),
        script.as_bytes(),
        Duration::from_secs(300),
    )?;
    let output = run::expect_ok("sqlite3", output)?;
    ensure!(
        output.stderr.is_empty(),
        "sqlite3: {}",
        run::tail(&output.stderr)
    );
    Ok(output.stdout)
}
