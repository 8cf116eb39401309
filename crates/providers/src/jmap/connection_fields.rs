//! The fields of a JMAP connection, and what they make: a server, a login and an account.

use domain::{
    ConnectionDeclaration, ConnectionField, ConnectionInput, FieldKind, FieldOption, InvalidField, NewConnection,
    Secret,
};
use serde_json::Value;

use super::settings::{JmapAuth, JmapConnection};

pub const CONNECTION: ConnectionDeclaration = ConnectionDeclaration {
    fields: &[&URL, &USER, &PASSWORD, &TOKEN, &ACCOUNT, &ALLOW_REDIRECT],
    has_byte_quota: true,
    about: "A mailbox at any JMAP server, such as Fastmail, Stalwart or Cyrus",
    add_help: "Examples:\n  mailroom mailbox add jmap --tenant acme --address me@acme.test --url https://jmap.acme.test --password-file password\n  mailroom mailbox add jmap --tenant acme --address me@acme.test --url https://api.fastmail.com --token-file token\n\nWithout --password-file the password is asked for, or read from standard input if that is not a terminal.",
    connect,
    change,
    secret_field,
    prompt: Some(prompt),
};

const URL: ConnectionField = ConnectionField {
    help: Some("URL of the JMAP server, or of its session resource."),
    example: Some("https://jmap.acme.test"),
    ..ConnectionField::new(
        "url",
        FieldKind::Text,
        FieldOption {
            is_required: true,
            ..FieldOption::new("url", "URL", "URL of the server, or of its session resource")
        },
    )
};

const USER: ConnectionField = ConnectionField {
    help: Some("Login name. Default: the address."),
    ..ConnectionField::new(
        "user",
        FieldKind::Text,
        FieldOption::new("user", "USER", "Login name (default: the address)"),
    )
};

const PASSWORD: ConnectionField = ConnectionField::new(
    "password",
    FieldKind::Secret,
    FieldOption {
        noun: "a password",
        replacement_help: Some("File with a new password"),
        conflicts_with: &["token"],
        ..FieldOption::new("password-file", "FILE", "File with the password")
    },
);

const TOKEN: ConnectionField = ConnectionField {
    help: Some("API token, instead of a password."),
    ..ConnectionField::new(
        "token",
        FieldKind::Secret,
        FieldOption {
            noun: "a token",
            replacement_help: Some("File with a new token"),
            ..FieldOption::new("token-file", "FILE", "File with an API token, instead of a password")
        },
    )
};

const ACCOUNT: ConnectionField = ConnectionField {
    help: Some("Id or name of the account, where the login opens several. Default: its primary account for mail."),
    ..ConnectionField::new(
        "account",
        FieldKind::Text,
        FieldOption::new("account", "ACCOUNT", "Id or name of the account (default: the login's own)"),
    )
};

const ALLOW_REDIRECT: ConnectionField = ConnectionField {
    help: Some("Allows `url` to redirect to another host, which the password or token is then sent to."),
    ..ConnectionField::new(
        "allow_redirect",
        FieldKind::Bool,
        FieldOption::new(
            "allow-redirect",
            "",
            "Allow the URL to redirect to another host, which the password or token is then sent to",
        ),
    )
};

fn connect(input: &ConnectionInput, address: &str) -> Result<NewConnection, InvalidField> {
    let url = input.text(&URL).ok_or_else(|| InvalidField::new(URL.name, "is required"))?;
    let (connection, secret) = apply(input, connection_to(url, address)?)?;
    let missing = secret.is_none().then(|| InvalidField::new(PASSWORD.name, "is required, unless a {token} is given"));
    Ok(NewConnection { settings: stored(&connection)?, secret, missing })
}

fn change(before: &Value, input: &ConnectionInput) -> Result<NewConnection, InvalidField> {
    let before: JmapConnection = serde_json::from_value(before.clone()).map_err(unreadable)?;
    let moved = match input.text(&URL) {
        Some(url) => {
            let JmapConnection { url, host, port, .. } = connection_to(url, &before.user)?;
            JmapConnection { url, host, port, ..before.clone() }
        }
        None => before.clone(),
    };
    let (connection, secret) = apply(input, moved)?;
    // The stored credentials must not be sent to a server that the caller chooses.
    if secret.is_none() && !is_same_login(&before, &connection) {
        let why = "must be given to change {url}, {user} or {allow_redirect}, unless a {token} is given";
        return Err(InvalidField::new(PASSWORD.name, why));
    }
    Ok(NewConnection { settings: stored(&connection)?, secret, missing: None })
}

fn connection_to(url: &str, user: &str) -> Result<JmapConnection, InvalidField> {
    JmapConnection::new(url, user).map_err(|why| InvalidField::new(URL.name, why))
}

/// Applies the given fields but for the URL.
fn apply(
    input: &ConnectionInput,
    mut connection: JmapConnection,
) -> Result<(JmapConnection, Option<Secret<String>>), InvalidField> {
    if let Some(user) = input.text(&USER) {
        connection.user = user.to_owned();
    }
    if let Some(account) = input.text(&ACCOUNT) {
        connection.account_name = Some(account.to_owned());
    }
    if input.is_given(&ALLOW_REDIRECT) {
        connection.follows_redirects = input.is_set(&ALLOW_REDIRECT);
    }
    let secret = match (input.secret(&PASSWORD), input.secret(&TOKEN)) {
        (Some(_), Some(_)) => return Err(InvalidField::new(TOKEN.name, "cannot be combined with {password}")),
        (Some(password), None) => Some((password, JmapAuth::Password)),
        (None, Some(token)) => Some((token, JmapAuth::Token)),
        (None, None) => None,
    };
    if let Some((_, auth)) = secret {
        connection.auth = auth;
    }
    Ok((connection, secret.map(|(secret, _)| secret.clone())))
}

/// Returns whether credentials that are sent to one connection would be sent to the same login of the same server.
fn is_same_login(one: &JmapConnection, other: &JmapConnection) -> bool {
    let may_leave = other.follows_redirects && !one.follows_redirects;
    (&one.url, &one.user) == (&other.url, &other.user) && !may_leave
}

fn stored(connection: &JmapConnection) -> Result<Value, InvalidField> {
    serde_json::to_value(connection).map_err(unreadable)
}

fn unreadable(e: impl std::fmt::Display) -> InvalidField {
    InvalidField::new("connection", format!("cannot be read: {e}"))
}

fn secret_field(connection: &Value) -> &'static str {
    if connection["auth"] == "token" { TOKEN.name } else { PASSWORD.name }
}

fn prompt(connection: &Value) -> String {
    let [user, host] = ["user", "host"].map(|name| connection[name].as_str().unwrap_or_default());
    format!("Password of {user} at {host} (not shown):")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn input(given: &[(&ConnectionField, Value)]) -> ConnectionInput {
        let mut input = ConnectionInput::default();
        given.iter().for_each(|(field, value)| input.insert(field, field.read(value).unwrap()));
        input
    }

    fn refused(made: Result<NewConnection, InvalidField>) -> String {
        made.map(|made| made.settings).unwrap_err().field
    }

    #[test]
    fn new_connection_has_the_address_as_its_user() {
        let given = input(&[(&URL, json!("https://jmap.acme.test")), (&PASSWORD, json!("p"))]);

        let made = connect(&given, "me@acme.test").unwrap();

        let expected = json!({
            "url": "https://jmap.acme.test", "host": "jmap.acme.test", "port": 443, "user": "me@acme.test",
            "auth": "password",
        });
        assert_eq!(made.settings, expected);
        assert_eq!((made.secret.unwrap().expose().as_str(), made.missing), ("p", None));
        let token = input(&[(&URL, json!("https://a.test")), (&TOKEN, json!("t")), (&ACCOUNT, json!("u1"))]);
        let made = connect(&token, "me@acme.test").unwrap().settings;
        assert_eq!((secret_field(&made), &made["account_name"]), ("token", &json!("u1")));
    }

    #[test]
    fn connection_without_its_fields_is_refused() {
        let url = (&URL, json!("https://a.test"));
        assert_eq!(refused(connect(&input(&[]), "a@b")), "url");
        assert_eq!(refused(connect(&input(&[(&URL, json!("http://a.test"))]), "a@b")), "url");
        let both = [url.clone(), (&PASSWORD, json!("p")), (&TOKEN, json!("t"))];
        assert_eq!(refused(connect(&input(&both), "a@b")), "token");
        assert_eq!(connect(&input(&[url]), "a@b").unwrap().missing.unwrap().field, "password");
    }

    #[test]
    fn stored_password_goes_to_no_other_server() {
        let given = input(&[(&URL, json!("https://a.test")), (&PASSWORD, json!("p"))]);
        let before = connect(&given, "a@b").unwrap().settings;
        let elsewhere = (&URL, json!("https://b.test"));

        assert_eq!(refused(change(&before, &input(std::slice::from_ref(&elsewhere)))), "password");
        assert_eq!(refused(change(&before, &input(&[(&ALLOW_REDIRECT, json!(true))]))), "password");
        let made = change(&before, &input(&[elsewhere, (&PASSWORD, json!("q"))])).unwrap();
        assert_eq!((&made.settings["host"], &made.settings["user"]), (&json!("b.test"), &json!("a@b")));
        assert_eq!(change(&before, &input(&[])).unwrap().settings, before);
    }
}
