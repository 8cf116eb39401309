//! The fields of a request that are its provider's: which there are is declared by the providers' folders.

use std::collections::BTreeMap;
use std::fmt;

use domain::{
    ConnectionDeclaration, ConnectionField, ConnectionInput, FieldKind, NewConnection, Provider, ProviderDeclarations,
};
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::{Value, json};
use utoipa::openapi::{OpenApi as Description, RefOr, Schema};

use crate::problem::Problem;

/// Fields that the request itself does not have, by name.
pub type ConnectionBody = BTreeMap<String, Value>;

/// Reads the fields that are left. Fails for one that is given twice.
pub fn connection_body<'de, D: Deserializer<'de>>(fields: D) -> Result<ConnectionBody, D::Error> {
    struct FieldsVisitor;
    impl<'de> Visitor<'de> for FieldsVisitor {
        type Value = ConnectionBody;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<ConnectionBody, A::Error> {
            let mut given = ConnectionBody::new();
            while let Some((name, value)) = fields.next_entry::<String, Value>()? {
                if given.contains_key(&name) {
                    return Err(A::Error::custom(format!("duplicate field `{name}`")));
                }
                given.insert(name, value);
            }
            Ok(given)
        }
    }
    fields.deserialize_map(FieldsVisitor)
}

/// Makes the connection of a new mailbox.
pub fn connect(
    declaration: &ConnectionDeclaration,
    input: &ConnectionInput,
    address: &str,
) -> Result<NewConnection, Problem> {
    let made = (declaration.connect)(input, address)?;
    match made.missing {
        Some(missing) => Err(missing.into()),
        None => Ok(made),
    }
}

/// The fields that were given for a connection.
#[derive(Debug)]
pub struct GivenFields {
    pub input: ConnectionInput,
    /// One that only connections of other providers have.
    foreign: Option<String>,
}

impl GivenFields {
    /// Reads the fields for a provider. `is_new`: of a mailbox that is not connected yet.
    pub fn read(
        body: &ConnectionBody,
        providers: ProviderDeclarations,
        provider: Provider,
        is_new: bool,
    ) -> Result<Self, Problem> {
        let mut given = Self { input: ConnectionInput::default(), foreign: None };
        for (name, value) in body {
            let declared = providers.find(provider).and_then(|declaration| declaration.connection.field(name));
            match (declared, providers.find_field(name)) {
                (Some(field), _) if is_new || field.is_changeable => {
                    let value = field.read(value).map_err(|why| Problem::invalid(name, why))?;
                    given.input.insert(field, value);
                }
                // Clients that are generated write out what is off.
                (None, Some(field)) if matches!(field.kind, FieldKind::Bool) && *value == Value::Bool(false) => {}
                (None, Some(field)) if is_new || field.is_changeable => given.foreign = Some(name.clone()),
                _ => return Err(Problem::invalid(name, "is not a field of this request")),
            }
        }
        Ok(given)
    }

    /// Fails if a field was given that only other providers have.
    pub fn check_supported(&self, provider: Provider) -> Result<(), Problem> {
        self.foreign.as_ref().map_or(Ok(()), |field| Err(unsupported(field, provider)))
    }
}

pub fn unsupported(field: &str, provider: Provider) -> Problem {
    let detail = match provider {
        Provider::Files => "is not supported by a mailbox for imported files".to_owned(),
        provider => format!("is not supported by {} mailboxes", provider.as_str()),
    };
    Problem::invalid(field, detail)
}

/// Fails for a field that is set and that only the operator may set.
pub fn refuse_operator_fields(declaration: &ConnectionDeclaration, input: &ConnectionInput) -> Result<(), Problem> {
    let refused = declaration.fields.iter().find_map(|field| field.operator_only.filter(|_| input.is_set(field)));
    refused.map_or(Ok(()), |why| Err(Problem::forbidden(why)))
}

/// Adds the fields of all providers to the descriptions of the requests that take them.
pub fn describe_fields(description: &mut Description, providers: ProviderDeclarations) {
    let fields = providers.connection_fields();
    let changeable: Vec<_> = fields.iter().copied().filter(|field| field.is_changeable).collect();
    let Some(components) = &mut description.components else { return };
    for (name, fields) in [("NewMailbox", &fields), ("MailboxChange", &changeable)] {
        if let Some(schema) = components.schemas.get_mut(name) {
            add_properties(schema, fields);
        }
    }
}

fn add_properties(schema: &mut RefOr<Schema>, fields: &[&ConnectionField]) {
    let Ok(mut changed) = serde_json::to_value(&*schema) else { return };
    changed["additionalProperties"] = json!(false);
    for field in fields {
        changed["properties"][field.name] = property(field);
    }
    if let Ok(changed) = serde_json::from_value(changed) {
        *schema = changed;
    }
}

fn property(field: &ConnectionField) -> Value {
    let mut property = match field.kind {
        FieldKind::Text | FieldKind::Document => json!({"type": "string"}),
        FieldKind::Number { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        FieldKind::Bool => json!({"type": "boolean"}),
        FieldKind::Choice(choices) => {
            json!({"type": "string", "enum": choices.iter().map(|choice| choice.word).collect::<Vec<_>>()})
        }
        FieldKind::Secret => json!({"type": "string", "format": "password"}),
    };
    for (name, text) in [("description", field.help), ("example", field.example)] {
        if let Some(text) = text {
            property[name] = example_value(field.kind, text);
        }
    }
    property
}

/// Returns an example as a value of the field's kind.
fn example_value(kind: FieldKind, text: &str) -> Value {
    match (kind, text.parse::<u64>()) {
        (FieldKind::Number { .. }, Ok(number)) => number.into(),
        _ => text.into(),
    }
}
