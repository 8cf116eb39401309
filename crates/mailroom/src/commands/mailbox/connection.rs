//! Reads the fields of a connection that a command was given, and says what is wrong with them by the names of its options.

use std::path::Path;

use domain::{ConnectionDeclaration, ConnectionField, ConnectionInput, FieldKind, FieldValue, InvalidField};
use terminal::Failure;

use super::secret::read_secret;
use crate::cli::provider_options::{FieldArgument, FieldArguments};

/// Reads all fields, those in files from these.
pub(super) fn read_fields(fields: &FieldArguments) -> Result<ConnectionInput, Failure> {
    let mut input = ConnectionInput::default();
    for (field, given) in fields {
        let value = match given {
            FieldArgument::Value(value) => {
                field.read(value).map_err(|why| Failure::usage(format!("--{} {why}", field.option.name)))?
            }
            FieldArgument::File(file) => read_file(field, file)?,
        };
        input.insert(field, value);
    }
    Ok(input)
}

fn read_file(field: &ConnectionField, file: &Path) -> Result<FieldValue, Failure> {
    let text = match field.kind {
        FieldKind::Secret => read_secret(file)?.expose().clone(),
        _ => std::fs::read_to_string(file)
            .map_err(|e| Failure::problem(format!("cannot read {} in {} ({e})", field.option.noun, file.display())))?,
    };
    field.read(&text.into()).map_err(|why| Failure::problem(format!("the content of {} {why}", file.display())))
}

/// Returns the failure of a field, in the words of the command line.
pub(super) fn invalid_field(connection: &ConnectionDeclaration, wrong: &InvalidField) -> Failure {
    let why = wrong.why_with(|field| option_name(connection, field));
    let sentence = format!("{} {why}", option_name(connection, &wrong.field));
    // What is wrong with a file is no wrong usage.
    match connection.field(&wrong.field).map(|field| field.kind) {
        Some(FieldKind::Document) => Failure::problem(sentence),
        _ => Failure::usage(sentence),
    }
}

fn option_name(connection: &ConnectionDeclaration, field: &str) -> String {
    connection.field(field).map_or_else(|| field.to_owned(), |field| format!("--{}", field.option.name))
}
