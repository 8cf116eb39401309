//! All providers, a line each.

use domain::{ProviderDeclaration, ProviderDeclarations};

use crate::app::ProviderFolder;

/// The folders of all providers.
pub const ALL: [ProviderFolder; 4] =
    [crate::imap::FOLDER, crate::gmail::FOLDER, crate::outlook::FOLDER, crate::jmap::FOLDER];

/// What they declare, in the same order.
pub const DECLARATIONS: ProviderDeclarations = ProviderDeclarations(&LISTED);

static LISTED: [&ProviderDeclaration; ALL.len()] = {
    let mut listed = [ALL[0].declaration; ALL.len()];
    let mut index = 0;
    while index < ALL.len() {
        listed[index] = ALL[index].declaration;
        index += 1;
    }
    listed
};
