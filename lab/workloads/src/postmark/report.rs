//! The report in the form of PostMark 1.5.

use super::{Counts, PostMark};
use crate::clock::Span;
use crate::report::{Report, rate};
use std::fmt::Write;

/// All instances' report together. Rates of reading, appending and mixed work are of the
/// transactions' time, those of data of the total time, as PostMark has them.
pub(super) fn text(parameters: &PostMark, report: &Report<PostMark>) -> String {
    let counts = &report.detail;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, parameters, report.operations, counts);
    text
}

fn write(
    text: &mut String,
    parameters: &PostMark,
    transactions: u64,
    counts: &Counts,
) -> std::fmt::Result {
    let (total, mixed) = (counts.total, counts.transactions);
    writeln!(
        text,
        "postmark: {} files of {} to {} bytes, {} transactions, each",
        parameters.number, parameters.size_low, parameters.size_high, parameters.transactions
    )?;
    writeln!(text, "Time:\n\t{:.3} seconds total", total.seconds())?;
    writeln!(
        text,
        "\t{:.3} seconds of transactions ({:.0} per second)\n\nFiles:",
        mixed.seconds(),
        per(transactions, mixed)
    )?;
    write_files(text, counts)?;
    write_data(text, counts)
}

fn per(count: u64, span: Span) -> f64 {
    rate(count, span.seconds())
}

fn write_files(text: &mut String, counts: &Counts) -> std::fmt::Result {
    let (total, mixed) = (counts.total, counts.transactions);
    let created = counts.created_alone + counts.created_mixed;
    let deleted = counts.deleted_alone + counts.deleted_mixed;
    for (indent, what, count, unit, span) in [
        ("\t", "", created, "created", total),
        (
            "\t\t",
            "Creation alone: ",
            counts.created_alone,
            "files",
            counts.creation,
        ),
        (
            "\t\t",
            "Mixed with transactions: ",
            counts.created_mixed,
            "files",
            mixed,
        ),
        ("\t", "", counts.read, "read", mixed),
        ("\t", "", counts.appended, "appended", mixed),
        ("\t", "", deleted, "deleted", total),
        (
            "\t\t",
            "Deletion alone: ",
            counts.deleted_alone,
            "files",
            counts.deletion,
        ),
        (
            "\t\t",
            "Mixed with transactions: ",
            counts.deleted_mixed,
            "files",
            mixed,
        ),
    ] {
        let rate = per(count, span);
        writeln!(text, "{indent}{what}{count} {unit} ({rate:.0} per second)")?;
    }
    Ok(())
}

fn write_data(text: &mut String, counts: &Counts) -> std::fmt::Result {
    write!(text, "\nData:")?;
    for (bytes, what) in [
        (counts.bytes_read, "read"),
        (counts.bytes_written, "written"),
    ] {
        let rate = scaled(per(bytes, counts.total));
        write!(
            text,
            "\n\t{} {what} ({rate} per second)",
            scaled(bytes as f64)
        )?;
    }
    Ok(())
}

/// Bytes as PostMark prints them, in powers of 1024.
fn scaled(bytes: f64) -> String {
    const KIB: f64 = 1024.0;
    const MIB: f64 = KIB * KIB;
    if bytes >= MIB {
        format!("{:.2} megabytes", bytes / MIB)
    } else if bytes >= KIB {
        format!("{:.2} kilobytes", bytes / KIB)
    } else {
        format!("{bytes:.2} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_as_postmarks() {
        let counts = Counts {
            created_alone: 20,
            created_mixed: 54,
            read: 54,
            appended: 46,
            deleted_mixed: 46,
            deleted_alone: 28,
            bytes_read: 365_988,
            bytes_written: 5_000_000,
            total: Span::of(0, 1_000_000_000),
            creation: Span::of(0, 1_000_000_000),
            transactions: Span::of(0, 500_000_000),
            deletion: Span::of(0, 1_000_000_000),
        };
        let mut found = String::new();
        write(&mut found, &PostMark::default(), 100, &counts).unwrap();
        let expected = "\
postmark: 500 files of 500 to 10000 bytes, 500 transactions, each
Time:
\t1.000 seconds total
\t0.500 seconds of transactions (200 per second)

Files:
\t74 created (74 per second)
\t\tCreation alone: 20 files (20 per second)
\t\tMixed with transactions: 54 files (108 per second)
\t54 read (108 per second)
\t46 appended (92 per second)
\t74 deleted (74 per second)
\t\tDeletion alone: 28 files (28 per second)
\t\tMixed with transactions: 46 files (92 per second)

Data:
\t357.41 kilobytes read (357.41 kilobytes per second)
\t4.77 megabytes written (4.77 megabytes per second)";
        assert_eq!(found, expected);
    }
}
