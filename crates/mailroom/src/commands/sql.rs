//! `mailroom sql QUERY`

use std::io::Read;
use std::process::ExitCode;

use domain::units::{DURATION_UNITS, parse_duration};
use engine::Engine;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;
use store::sql_query::{SqlQuery, SqlQueryError, SqlResult};
use store::views::VIEWS;
use terminal::{Failure, Output, count, note, one_line};

use super::sql_readers;
use crate::app;
use crate::cli::sql::SqlArgs;
use crate::config::Config;

/// What a cell of a table shows of a longer text; --csv and --json show all of it.
const MAX_CELL_CHARS: usize = 60;

pub async fn run(config: &Config, args: SqlArgs, out: Output) -> Result<ExitCode, Failure> {
    let engine = app::open(config).await?;
    match args.command {
        Some(command) => sql_readers::run(&engine, command, out).await?,
        None => query(&engine, &args, out).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn query(engine: &Engine, args: &SqlArgs, out: Output) -> Result<(), Failure> {
    if args.csv && out.json {
        return Err(Failure::usage("--csv and --json are two formats; choose one"));
    }
    let tenant = match &args.tenant {
        Some(name) => Some(app::find_tenant(&engine.store, name).await?.id),
        None => None,
    };
    let timeout = parse_duration(&args.timeout).ok().filter(|timeout| !timeout.is_zero()).ok_or_else(|| {
        Failure::usage(format!(
            "--timeout must be a duration such as 30s, not {:?}; units are {DURATION_UNITS}",
            args.timeout
        ))
    })?;
    let query = SqlQuery { text: text(args.query.as_deref())?, tenant, max_rows: args.limit, timeout };
    let found = engine.store.run_sql_query(query).await.map_err(failure)?;
    print(&found, args.csv, out)?;
    if found.is_cut {
        note(&format!("Only the first {} rows are shown; --limit N shows more.", count(found.rows.len() as u64)));
    }
    Ok(())
}

fn text(given: Option<&str>) -> Result<String, Failure> {
    match given {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            Ok(text)
        }
        Some(text) => Ok(text.to_owned()),
        None => Err(Failure::usage("a query is required, such as 'select * from mailroom_mailboxes'")),
    }
}

fn failure(e: SqlQueryError) -> Failure {
    match e {
        SqlQueryError::Store(e) => e.into(),
        SqlQueryError::Refused(reason) => {
            let views: Vec<&str> = VIEWS.iter().map(|view| view.name).collect();
            let reason = one_line(&reason, 500);
            Failure::usage(format!("{reason}; the views are {} (docs/sql-schema.md)", views.join(", ")))
        }
        SqlQueryError::TimedOut(_) => Failure::problem(format!("{e}; --timeout allows more")),
        SqlQueryError::TooLarge => Failure::problem(e.to_string()),
    }
}

fn print(found: &SqlResult, is_csv: bool, out: Output) -> Result<(), Failure> {
    if out.json {
        let names = unique_names(&found.columns);
        return found.rows.iter().try_for_each(|values| out.object(&JsonRow { names: &names, values }));
    }
    if is_csv {
        out.line(&csv_line(&found.columns))?;
        return found.rows.iter().try_for_each(|row| out.line(&csv_line(&row.iter().map(shown).collect::<Vec<_>>())));
    }
    let heading = cells(&found.columns);
    let rows: Vec<Vec<String>> =
        found.rows.iter().map(|row| cells(&row.iter().map(shown).collect::<Vec<_>>())).collect();
    out.grid(&heading, &rows)
}

fn cells(texts: &[String]) -> Vec<String> {
    texts.iter().map(|text| one_line(text, MAX_CELL_CHARS)).collect()
}

/// Returns a value as people read it; nothing for null.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Numbers columns of the same name, of which an object would keep one.
fn unique_names(columns: &[String]) -> Vec<String> {
    let nth = |n: usize| columns[..n].iter().filter(|earlier| **earlier == columns[n]).count();
    let name = |(n, column): (usize, &String)| match nth(n) {
        0 => column.clone(),
        earlier => format!("{column}_{}", earlier + 1),
    };
    columns.iter().enumerate().map(name).collect()
}

/// Joins fields as RFC 4180 says, but for the end of the line.
fn csv_line(fields: &[String]) -> String {
    fields.iter().map(|field| csv_field(field)).collect::<Vec<_>>().join(",")
}

fn csv_field(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// A row as an object with its columns in their order.
struct JsonRow<'a> {
    names: &'a [String],
    values: &'a [Value],
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.names.len()))?;
        self.names.iter().zip(self.values).try_for_each(|(name, value)| map.serialize_entry(name, value))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_what_would_be_read_otherwise() {
        let fields = ["plain", "", "a,b", "say \"hi\"", "two\nlines"].map(str::to_owned);

        assert_eq!(csv_line(&fields), "plain,,\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\"");
    }

    #[test]
    fn columns_of_the_same_name_are_numbered() {
        let columns = ["id", "name", "id", "id"].map(str::to_owned);

        assert_eq!(unique_names(&columns), ["id", "name", "id_2", "id_3"]);
    }
}
