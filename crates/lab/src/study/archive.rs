//! A results folder: the files of every run of a study, and their reading.
//!
//! ```text
//! DIR/STUDY/BACKEND/result.json         the input of all pages
//! DIR/STUDY/BACKEND/TABLE.csv
//! DIR/STUDY/BACKEND/CHART.svg, .png
//! DIR/STUDY/BACKEND/flent/RUN.flent.gz  each transfer over time
//! DIR/STUDY.html, DIR/index.html        pages, made by `whimbrel study report`
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{Backend, StudyResult, Table, flent};
use whimbrel_node::exact_json;

use crate::LabError;

const RESULT: &str = "result.json";
const FLENT: &str = "flent";

fn folder_of(root: &Path, study: &str, backend: Backend) -> PathBuf {
    root.join(study).join(backend.name())
}

/// Writes all but the pages below `root`, in place of an earlier run on the same back end. Returns
/// the folder.
pub fn write_result(result: &StudyResult, root: &Path) -> Result<PathBuf, LabError> {
    let folder = folder_of(root, &result.study, result.backend);
    let failed = |path: &Path| LabError::system(format!("write {}", path.display()));
    let flent_folder = folder.join(FLENT);
    remove_flent_files(&flent_folder)?;
    let needed = if result.transfers.is_empty() {
        &folder
    } else {
        &flent_folder
    };
    std::fs::create_dir_all(needed).map_err(failed(needed))?;
    for table in &result.tables {
        let path = folder.join(&table.name).with_extension("csv");
        std::fs::write(&path, csv(table)).map_err(failed(&path))?;
    }
    for named in &result.charts {
        named.chart.write(&folder.join(&named.name))?;
    }
    for transfer in &result.transfers {
        flent::write(
            result,
            transfer,
            &flent_folder.join(format!("{}{}", transfer.label, flent::ENDING)),
        )?;
    }
    let path = folder.join(RESULT);
    let json = exact_json::pretty(result).unwrap_or_default();
    std::fs::write(&path, json).map_err(failed(&path))?;
    Ok(folder)
}

/// Removes the files of an earlier run, which may have had more transfers than this one.
fn remove_flent_files(folder: &Path) -> Result<(), LabError> {
    let failed = || LabError::system(format!("clear {}", folder.display()));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed()(error)),
    };
    for entry in entries {
        let path = entry.map_err(failed())?.path();
        if path.to_string_lossy().ends_with(flent::ENDING) {
            std::fs::remove_file(&path).map_err(failed())?;
        }
    }
    Ok(())
}

/// Returns the results of `study` below `root`, for each back end that ran it.
pub fn read_results(root: &Path, study: &str) -> Result<Vec<StudyResult>, LabError> {
    let mut results = Vec::new();
    for backend in Backend::ALL {
        let path = folder_of(root, study, backend).join(RESULT);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                results.push(
                    exact_json::read(&text).map_err(|fault| LabError::BadResult {
                        path: path.display().to_string(),
                        reason: fault.to_string(),
                    })?,
                )
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(LabError::system(format!("read {}", path.display()))(error)),
        }
    }
    Ok(results)
}

fn csv(table: &Table) -> String {
    // Cells are numbers and labels of this program, so only a comma in a label needs care.
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells
            .iter()
            .map(|cell| {
                if cell.contains(',') {
                    format!("\"{cell}\"")
                } else {
                    cell.clone()
                }
            })
            .collect();
        cells.join(",") + "\n"
    };
    line(&table.columns) + &table.rows.iter().map(|row| line(row)).collect::<String>()
}
