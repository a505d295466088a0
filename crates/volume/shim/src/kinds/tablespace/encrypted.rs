//! Encrypted tablespaces: images that the node could not read, and files that a server without a key must not open.

use super::{Tablespace, classify_page::facts};
use crate::base::message::{self, show};
use crate::base::real::Errno;
use crate::content::Content;
use redoubt_page::encryption::CryptData;
use redoubt_page::flags_of_page0;
use redoubt_redo::Family;
use std::sync::atomic::Ordering;

/// Error message about a page that the server has encrypted.
pub(super) const fn refusal(family: Family) -> &'static str {
    match family {
        Family::MariaDb => {
            "an encrypted page was written, and the node would hold it in clear: start with `redoubt run --clear-pages` to \
             allow that, or set innodb_encrypt_tables=OFF and ALTER TABLE ... ENCRYPTED=NO"
        }
        Family::MySql => {
            "an encrypted page was written, and the node cannot read it: encrypted tablespaces of MySQL are not supported. \
             Use ALTER TABLE ... ENCRYPTION='N'"
        }
    }
}

impl Tablespace {
    /// Before a page is sent as it is.
    ///
    /// # Errors
    /// `EIO` for an encrypted one.
    pub(super) fn require_clear(
        &self,
        family: Family,
        page: &[u8],
        page_no: u32,
        path: &[u8],
    ) -> Result<(), Errno> {
        let info = *self.lock_info();
        if !facts(family, page, info, page_no).is_some_and(|facts| facts.is_encrypted) {
            return Ok(());
        }
        let decrypt = match family {
            Family::MariaDb => "ENCRYPTED=NO",
            Family::MySql => "ENCRYPTION='N'",
        };
        message::error(&format!(
            "page {page_no} of {} is encrypted, and no redo says what is in it: the node cannot read it. An encrypted table \
             cannot be imported: decrypt it first where it comes from (ALTER TABLE ... {decrypt}), and import it into one \
             that is not encrypted",
            show(path)
        ));
        Err(Errno::EIO)
    }

    /// Before the server gets page 0, with which it opens the tablespace. In clear it could read all pages without a
    /// key; at the first that it then wrote, and could not encrypt, it would end with a failed assertion.
    ///
    /// # Errors
    /// `EIO` if the tablespace is encrypted and the server has no key.
    pub(super) fn require_key(&self, content: &Content, page0: &[u8]) -> Result<(), Errno> {
        if content.family != Family::MariaDb {
            return Ok(());
        }
        let crypt_data = flags_of_page0(page0).ok().and_then(|flags| CryptData::of_page0(page0, flags));
        let is_encrypted = crypt_data.is_some_and(|data| data.is_encrypted);
        if !is_encrypted || content.has_key_plugin.load(Ordering::Acquire) {
            return Ok(());
        }
        let path = self.name.path(&content.names.lock_shared());
        message::error(&format!(
            "{} is encrypted and is not opened: the server has loaded no key management plugin. Start it with the plugin and \
             `redoubt run --clear-pages`",
            path.map_or_else(|| "a deleted file".to_owned(), |path| show(&path))
        ));
        Err(Errno::EIO)
    }
}
