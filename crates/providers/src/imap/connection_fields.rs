//! The fields of an IMAP connection, and what they make: a server, a login and how it is encrypted.

use domain::{
    ConnectionDeclaration, ConnectionField, ConnectionInput, FieldChoice, FieldKind, FieldOption, InvalidField,
    NewConnection, Secret,
};
use serde_json::Value;

use super::connection_check::has_ca_certificate;
use super::settings::{Auth, Connection, Tls, is_this_machine};

pub const CONNECTION: ConnectionDeclaration = ConnectionDeclaration {
    fields: &[&HOST, &PORT, &TLS, &USER, &PASSWORD, &TOKEN, &CA_PEM, &ALLOW_PLAINTEXT],
    has_byte_quota: true,
    about: "A mailbox at any IMAP server",
    add_help: "Examples:\n  mailroom mailbox add imap --tenant acme --address me@acme.test --host imap.acme.test --password-file password\n  mailroom mailbox add imap --tenant acme --address me@acme.test --host mail.acme.test --tls starttls --backfill 90d --exclude Archive\n\nWithout --password-file the password is asked for, or read from standard input if that is not a terminal.",
    connect,
    change,
    secret_field,
    prompt: Some(prompt),
};

const HOST: ConnectionField = ConnectionField {
    help: Some("Host name of the IMAP server."),
    example: Some("imap.acme.test"),
    ..ConnectionField::new(
        "host",
        FieldKind::Text,
        FieldOption { is_required: true, ..FieldOption::new("host", "HOST", "Host name or address of the server") },
    )
};

const PORT: ConnectionField = ConnectionField {
    example: Some("993"),
    ..ConnectionField::new(
        "port",
        FieldKind::Number { min: 1, max: 65_535 },
        FieldOption::new("port", "PORT", "Port (default: 993 with implicit TLS, else 143)"),
    )
};

const TLS: ConnectionField = ConnectionField {
    help: Some("How the connection is encrypted: `implicit` TLS, `starttls`, or `none`. Default: `implicit`."),
    ..ConnectionField::new(
        "tls",
        FieldKind::Choice(&[
            FieldChoice { word: "implicit", help: "TLS from the first byte" },
            FieldChoice { word: "starttls", help: "STARTTLS after the greeting; required" },
            FieldChoice { word: "none", help: "No encryption, for servers on this machine" },
        ]),
        FieldOption { default: Some("implicit"), ..FieldOption::new("tls", "HOW", "How the connection is secured") },
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
    help: Some("OAuth 2.0 access token, instead of a password."),
    ..ConnectionField::new(
        "token",
        FieldKind::Secret,
        FieldOption {
            noun: "a token",
            replacement_help: Some("File with a new token"),
            ..FieldOption::new("token-file", "FILE", "File with an OAuth access token, instead of a password")
        },
    )
};

const CA_PEM: ConnectionField = ConnectionField {
    help: Some("PEM certificates of an additional certificate authority to trust."),
    ..ConnectionField::new(
        "ca_pem",
        FieldKind::Document,
        FieldOption {
            noun: "the certificate",
            ..FieldOption::new(
                "ca-file",
                "FILE",
                "File with the certificate (PEM) of an additional certificate authority to trust",
            )
        },
    )
};

const ALLOW_PLAINTEXT: ConnectionField = ConnectionField {
    help: Some("Allows `tls` = `none` for a server on another machine: the password is then sent unencrypted."),
    ..ConnectionField::new(
        "allow_plaintext",
        FieldKind::Bool,
        FieldOption::new(
            "allow-plaintext",
            "",
            "Allow --tls none for a server on another machine: password and mail are sent unencrypted",
        ),
    )
};

fn connect(input: &ConnectionInput, address: &str) -> Result<NewConnection, InvalidField> {
    let host = input.text(&HOST).ok_or_else(|| InvalidField::new(HOST.name, "is required"))?.to_owned();
    let tls = tls(input).unwrap_or(Tls::Implicit);
    let connection = Connection {
        host,
        port: tls.usual_port(),
        tls,
        user: address.to_owned(),
        auth: Auth::default(),
        authority: None,
        compress: None,
    };
    let (connection, secret) = apply(input, connection)?;
    let missing = secret.is_none().then(|| InvalidField::new(PASSWORD.name, "is required, unless a {token} is given"));
    Ok(NewConnection { settings: stored(&connection)?, secret, missing })
}

fn change(before: &Value, input: &ConnectionInput) -> Result<NewConnection, InvalidField> {
    let before: Connection = serde_json::from_value(before.clone()).map_err(unreadable)?;
    let (connection, secret) = apply(input, before.clone())?;
    // The stored credentials must not be sent to a server that the caller chooses.
    if secret.is_none() && !is_same_login(&before, &connection) {
        let why = "must be given to change {host}, {port}, {tls}, {user} or {ca_pem}, unless a {token} is given";
        return Err(InvalidField::new(PASSWORD.name, why));
    }
    Ok(NewConnection { settings: stored(&connection)?, secret, missing: None })
}

/// Applies the given fields to a connection.
fn apply(
    input: &ConnectionInput,
    mut connection: Connection,
) -> Result<(Connection, Option<Secret<String>>), InvalidField> {
    if let Some(host) = input.text(&HOST) {
        if host.contains([' ', '/', '@']) {
            return Err(InvalidField::new(HOST.name, "must be a host name, such as imap.acme.test"));
        }
        connection.host = host.to_owned();
    }
    connection.tls = tls(input).unwrap_or(connection.tls);
    if let Some(port) = input.number(&PORT) {
        connection.port = u16::try_from(port).map_err(unreadable)?;
    }
    if let Some(user) = input.text(&USER) {
        connection.user = user.to_owned();
    }
    if let Some(pem) = input.text(&CA_PEM) {
        if !has_ca_certificate(pem) {
            let why = "must contain a certificate in PEM, which begins with -----BEGIN CERTIFICATE-----";
            return Err(InvalidField::new(CA_PEM.name, why));
        }
        connection.authority = Some(pem.to_owned());
    }
    if connection.tls == Tls::None && !input.is_set(&ALLOW_PLAINTEXT) && !is_this_machine(&connection.host) {
        let why = "must be starttls or implicit, since the password would be sent unencrypted; set {allow_plaintext} to allow that";
        return Err(InvalidField::new(TLS.name, why));
    }
    let secret = match (input.secret(&PASSWORD), input.secret(&TOKEN)) {
        (Some(_), Some(_)) => return Err(InvalidField::new(TOKEN.name, "cannot be combined with {password}")),
        (Some(password), None) => Some((password, Auth::Password)),
        (None, Some(token)) => Some((token, Auth::Token)),
        (None, None) => None,
    };
    if let Some((_, auth)) = secret {
        connection.auth = auth;
    }
    Ok((connection, secret.map(|(secret, _)| secret.clone())))
}

fn tls(input: &ConnectionInput) -> Option<Tls> {
    match input.text(&TLS)? {
        "starttls" => Some(Tls::StartTls),
        "none" => Some(Tls::None),
        _ => Some(Tls::Implicit),
    }
}

/// Returns whether credentials that are sent to one connection would be sent to the same account of the same server.
fn is_same_login(one: &Connection, other: &Connection) -> bool {
    (&one.host, one.port, one.tls, &one.user, &one.authority)
        == (&other.host, other.port, other.tls, &other.user, &other.authority)
}

fn stored(connection: &Connection) -> Result<Value, InvalidField> {
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
    fn new_connection_has_the_usual_port_and_user() {
        let given = input(&[(&HOST, json!("imap.acme.test")), (&PASSWORD, json!("p"))]);

        let made = connect(&given, "me@acme.test").unwrap();

        assert_eq!(
            made.settings,
            json!({"host": "imap.acme.test", "port": 993, "tls": "implicit", "user": "me@acme.test", "auth": "password"})
        );
        assert_eq!((made.secret.unwrap().expose().as_str(), made.missing), ("p", None));
        let token = input(&[(&HOST, json!("h")), (&TLS, json!("starttls")), (&TOKEN, json!("t"))]);
        let made = connect(&token, "me@acme.test").unwrap().settings;
        assert_eq!((&made["port"], &made["auth"]), (&json!(143), &json!("token")));
        assert_eq!(secret_field(&made), "token");
    }

    #[test]
    fn connection_without_its_fields_is_refused() {
        let host = (&HOST, json!("imap.acme.test"));
        assert_eq!(refused(connect(&input(&[]), "a@b")), "host");
        for (more, field) in [
            (vec![(&TLS, json!("none"))], "tls"),
            (vec![(&CA_PEM, json!("none"))], "ca_pem"),
            (vec![(&HOST, json!("a@b"))], "host"),
            (vec![(&PASSWORD, json!("p")), (&TOKEN, json!("t"))], "token"),
        ] {
            let given = [vec![host.clone()], more].concat();
            assert_eq!(refused(connect(&input(&given), "a@b")), field);
        }
        assert_eq!(connect(&input(&[host]), "a@b").unwrap().missing.unwrap().field, "password");
    }

    #[test]
    fn stored_password_goes_to_no_other_server() {
        let before = connect(&input(&[(&HOST, json!("a.test")), (&PASSWORD, json!("p"))]), "a@b").unwrap().settings;
        let elsewhere = (&HOST, json!("b.test"));

        assert_eq!(refused(change(&before, &input(std::slice::from_ref(&elsewhere)))), "password");
        let made = change(&before, &input(&[elsewhere, (&PASSWORD, json!("q"))])).unwrap();
        assert_eq!((&made.settings["host"], &made.settings["port"]), (&json!("b.test"), &json!(993)));
        assert_eq!(change(&before, &input(&[])).unwrap().settings, before);
    }
}
