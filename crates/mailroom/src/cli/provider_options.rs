//! Subcommands and options that are made from what the providers declare.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, Subcommand, value_parser};
use domain::{ConnectionField, FieldKind, Provider, ProviderDeclaration};
use providers::registry::DECLARATIONS;
use serde_json::Value;

/// A subcommand for each provider to which it applies.
#[derive(Debug)]
pub struct ProviderSubcommand<T> {
    pub provider: Provider,
    pub args: T,
}

/// The arguments of a provider's subcommand.
pub trait ProviderArgs: Sized {
    /// Adds help and options. Returns `None` if it does not apply to the provider.
    fn describe(command: Command, declaration: &'static ProviderDeclaration) -> Option<Command>;

    fn read(matches: &ArgMatches, declaration: &'static ProviderDeclaration) -> Result<Self, Error>;
}

impl<T: ProviderArgs> Subcommand for ProviderSubcommand<T> {
    fn augment_subcommands(command: Command) -> Command {
        let described = DECLARATIONS
            .iter()
            .filter_map(|declaration| T::describe(Command::new(declaration.provider.as_str()), declaration));
        command.subcommands(described)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        DECLARATIONS.find_by_name(name).is_some()
    }
}

impl<T: ProviderArgs> FromArgMatches for ProviderSubcommand<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let chosen = matches.subcommand();
        let chosen = chosen.and_then(|(name, matches)| Some((DECLARATIONS.find_by_name(name)?, matches)));
        let Some((declaration, matches)) = chosen else {
            return Err(Error::raw(ErrorKind::MissingSubcommand, "a provider is required"));
        };
        Ok(Self { provider: declaration.provider, args: T::read(matches, declaration)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A field that was given: its value, or the file that has it.
#[derive(Debug)]
pub enum FieldArgument {
    Value(Value),
    File(PathBuf),
}

/// The fields that were given.
pub type FieldArguments = Vec<(&'static ConnectionField, FieldArgument)>;

/// Adds an option for each field.
pub fn add_field_options(command: Command, fields: &'static [&'static ConnectionField]) -> Command {
    command.args(fields.iter().map(|field| field_option(field)))
}

/// Reads the fields that were given.
pub fn read_field_options(matches: &ArgMatches, fields: &'static [&'static ConnectionField]) -> FieldArguments {
    fields.iter().filter_map(|field| Some((*field, read_field(matches, field)?))).collect()
}

fn field_option(field: &'static ConnectionField) -> Arg {
    let option = &field.option;
    let mut arg = Arg::new(field.name).long(option.name).help(option.help).required(option.is_required);
    arg = arg.conflicts_with_all(option.conflicts_with.iter().copied());
    if let Some(other) = option.required_unless {
        arg = arg.required_unless_present(other);
    }
    if let Some(default) = option.default {
        arg = arg.default_value(default);
    }
    if !option.value_name.is_empty() {
        arg = arg.value_name(option.value_name);
    }
    match field.kind {
        FieldKind::Bool => arg.action(ArgAction::SetTrue),
        FieldKind::Text => arg,
        FieldKind::Number { min, max } => arg.value_parser(value_parser!(u64).range(min..=max)),
        FieldKind::Choice(choices) => {
            let words = choices.iter().map(|choice| PossibleValue::new(choice.word).help(choice.help));
            arg.value_parser(PossibleValuesParser::new(words))
        }
        FieldKind::Secret | FieldKind::Document => arg.value_parser(value_parser!(PathBuf)),
    }
}

fn read_field(matches: &ArgMatches, field: &ConnectionField) -> Option<FieldArgument> {
    let name = field.name;
    match field.kind {
        FieldKind::Bool => matches.get_flag(name).then(|| FieldArgument::Value(true.into())),
        FieldKind::Number { .. } => matches.get_one::<u64>(name).map(|number| FieldArgument::Value((*number).into())),
        FieldKind::Text | FieldKind::Choice(_) => {
            matches.get_one::<String>(name).map(|text| FieldArgument::Value(text.clone().into()))
        }
        FieldKind::Secret | FieldKind::Document => {
            matches.get_one::<PathBuf>(name).map(|file| FieldArgument::File(file.clone()))
        }
    }
}

/// A file with a new secret for a connected mailbox; which option it was given by tells its kind.
#[derive(Debug, Default)]
pub struct ReplacementSecret(pub Option<(&'static ConnectionField, PathBuf)>);

fn secret_fields() -> Vec<&'static ConnectionField> {
    DECLARATIONS.connection_fields().into_iter().filter(|field| field.is_secret()).collect()
}

impl Args for ReplacementSecret {
    fn augment_args(command: Command) -> Command {
        let fields = secret_fields();
        command.args(fields.iter().map(|field| {
            let others = fields.iter().filter(|other| other.name != field.name).map(|other| other.name);
            let option = &field.option;
            Arg::new(field.name)
                .long(option.name)
                .value_name(option.value_name)
                .help(option.replacement_help.unwrap_or(option.help))
                .value_parser(value_parser!(PathBuf))
                .conflicts_with_all(others)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ReplacementSecret {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = secret_fields().into_iter().find_map(|field| {
            let file = matches.get_one::<PathBuf>(field.name)?;
            Some((field, file.clone()))
        });
        Ok(Self(given))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
