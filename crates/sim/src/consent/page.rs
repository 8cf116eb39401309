//! The HTML pages that a person sees while signing in.

pub const HTML: &str = "text/html; charset=utf-8";

/// Renders the form that asks for an account and for consent to the scopes. It is posted to `action`.
pub fn consent(
    who: &str,
    action: &str,
    query: &[(String, String)],
    accounts: &[String],
    chosen: Option<&str>,
) -> String {
    let mut page = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Sign in (simulated)</title>\n\
         <h1>Sign in to a {who} that does not exist</h1>\n<form method=\"post\" action=\"{}\">\n",
        escaped(action)
    );
    for (name, value) in query {
        page.push_str(&format!("<input type=\"hidden\" name=\"{}\" value=\"{}\">\n", escaped(name), escaped(value)));
    }
    page.push_str("<p><label>Account <input name=\"account\" list=\"accounts\" required value=\"");
    page.push_str(&escaped(chosen.or(accounts.first().map(String::as_str)).unwrap_or_default()));
    page.push_str("\"></label></p>\n<datalist id=\"accounts\">");
    accounts.iter().for_each(|account| page.push_str(&format!("<option value=\"{}\">", escaped(account))));
    page.push_str("</datalist>\n<p>It wants to:</p>\n");
    let scopes = query.iter().filter(|(name, _)| name == "scope").flat_map(|(_, scopes)| scopes.split_whitespace());
    for scope in scopes {
        let scope = escaped(scope);
        page.push_str(&format!(
            "<p><label><input type=\"checkbox\" name=\"granted\" value=\"{scope}\" checked> {scope}</label></p>\n"
        ));
    }
    page.push_str(
        "<p><button name=\"decision\" value=\"allow\">Allow</button> \
         <button name=\"decision\" value=\"deny\">Deny</button></p>\n</form>\n",
    );
    page
}

pub fn refusal(status: u16, error: &str, why: &str) -> String {
    let why = escaped(why);
    format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Error {status}</title>\n<h1>Access blocked</h1>\n\
         <p>Error {status}: {error}</p>\n<p>{why}</p>\n"
    )
}

pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// Renders a form that submits itself (`response_mode=form_post`).
pub fn posted(action: &str, fields: &[(&str, String)]) -> String {
    let mut page = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Working...</title>\n<form method=\"post\" action=\"{}\">\n",
        escaped(action)
    );
    for (name, value) in fields {
        page.push_str(&format!("<input type=\"hidden\" name=\"{}\" value=\"{}\">\n", escaped(name), escaped(value)));
    }
    page.push_str(
        "<noscript><button>Continue</button></noscript>\n</form>\n<script>document.forms[0].submit()</script>\n",
    );
    page
}
