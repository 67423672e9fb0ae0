//! The store's own access rules, derived from the names of keys: what a site's user needs, and what
//! the daemon's does. In the words of `ACL SETUSER` of Redis 7 and Valkey.

use crossway_core::address::{Keyspace, SiteId};

/// Takes everything from a user but its passwords, and whether it is on.
const NOTHING: [&str; 4] = ["resetkeys", "resetchannels", "clearselectors", "-@all"];

/// What a service does: write and read streams, as one of a group or by itself, look at a reply that
/// it polls for, and what clients do when they connect. Each takes only keys that it is given, and none
/// can take a group or an entry away from the daemon.
const SITE_COMMANDS: &[&str] = &[
    "xadd",
    "xread",
    "xreadgroup",
    "xack",
    "xrange",
    "xrevrange",
    "xlen",
    "xpending",
    "xclaim",
    "xautoclaim",
    "xinfo|stream",
    "xinfo|groups",
    "xinfo|consumers",
    "xgroup|create",
    "xgroup|createconsumer",
    "get",
    "hget",
    "hgetall",
    "exists",
    "ttl",
    "pttl",
    "type",
    "ping",
    "echo",
    "hello",
    "auth",
    "quit",
    "reset",
    "select",
    "multi",
    "exec",
    "discard",
    "client|setname",
    "client|id",
];

/// What the daemon does, by itself and in its scripts.
const DAEMON_COMMANDS: &[&str] = &[
    "xadd",
    "xreadgroup",
    "xack",
    "xclaim",
    "xdel",
    "xrange",
    "xlen",
    "xtrim",
    "xpending",
    "xinfo|stream",
    "xinfo|groups",
    "xinfo|consumers",
    "xgroup|create",
    "xgroup|setid",
    "xgroup|delconsumer",
    "get",
    "mget",
    "set",
    "del",
    "exists",
    "type",
    "pttl",
    "pexpire",
    "object|idletime",
    "hget",
    "hgetall",
    "hset",
    "hsetnx",
    "hdel",
    "smembers",
    "sadd",
    "srem",
    "scan",
    "watch",
    "unwatch",
    "multi",
    "exec",
    "eval",
    "evalsha",
    "script|load",
    "time",
    "wait",
    "info",
    "ping",
    "hello",
    "auth",
    "select",
    "client|setname",
    "client|id",
    "client|list",
    // What ends connections that have broken, and waits that are no longer wanted.
    "client|kill",
    "client|unblock",
    "client|tracking",
];

/// The user that is a site's: it is called as the site is. None is, where that would be the user
/// that everybody is who doesn't say otherwise.
#[must_use]
pub fn user_of(site: &SiteId) -> Option<&str> {
    Some(site.as_str()).filter(|name| *name != "default")
}

/// The rules of a site's user: its own keys in both spellings, and its open channels.
///
/// They take what the user had, its passwords excepted.
pub fn site_rules<'c>(
    keyspace: &Keyspace,
    site: &SiteId,
    channels: impl IntoIterator<Item = &'c str>,
) -> Vec<String> {
    // No name can hold anything that a pattern gives a meaning to, and the colon ends it: the keys of
    // `a` aren't those of `a.b`.
    let mut rules = nothing();
    rules.extend([format!("~{site}:*"), format!("~{{{site}}}:*")]);
    for channel in channels {
        rules.push(format!("~{}", keyspace.direct(channel)));
        rules.push(format!("%R~{}", keyspace.direct_meta(channel)));
    }
    rules.extend(SITE_COMMANDS.iter().map(allow));
    rules
}

/// The rules of the daemon's user. `manages_access` lets it change other users, as
/// `relay.manage_access` needs: whoever can do that can do everything.
#[must_use]
pub fn daemon_rules(keyspace: &Keyspace, manages_access: bool) -> Vec<String> {
    let mut rules = nothing();
    let patterns = keyspace.daemon_patterns();
    rules.extend(patterns.iter().map(|pattern| format!("~{pattern}")));
    rules.extend(DAEMON_COMMANDS.iter().map(allow));
    if manages_access {
        rules.extend(["acl|getuser", "acl|setuser"].iter().map(allow));
    }
    rules
}

fn nothing() -> Vec<String> {
    NOTHING.map(str::to_owned).to_vec()
}

fn allow(command: &&str) -> String {
    format!("+{command}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossway_core::address::Spelling;

    fn keyspace(spelling: Spelling) -> Keyspace {
        Keyspace::new("gnode", "gnode", spelling, &[]).unwrap()
    }

    #[test]
    fn a_site_has_its_own_keys_in_both_spellings_and_its_channels_and_no_more() {
        let site = SiteId::parse("a.b-c").unwrap();
        let rules = site_rules(&keyspace(Spelling::Tagged), &site, ["dc_1"]);
        let keys: Vec<&str> = rules
            .iter()
            .map(String::as_str)
            .filter(|rule| rule.contains('~'))
            .collect();
        assert_eq!(
            keys,
            [
                "~a.b-c:*",
                "~{a.b-c}:*",
                "~{gnode}:gnode:direct:dc_1",
                "%R~{gnode}:gnode:direct:dc_1:meta"
            ]
        );
        // What was there before goes first, and passwords aren't touched.
        assert_eq!(rules[..4], NOTHING);
        assert!(
            !rules
                .iter()
                .any(|rule| rule == "reset" || rule == "resetpass")
        );
    }

    #[test]
    fn no_site_has_the_user_that_everybody_is() {
        let user = |name| user_of(&SiteId::parse(name).unwrap()).map(str::to_owned);
        assert_eq!(user("a"), Some("a".to_owned()));
        assert_eq!(user("default"), None);
    }

    #[test]
    fn the_daemon_may_change_users_only_where_it_manages_access() {
        let has = |rules: &[String]| rules.iter().any(|rule| rule.starts_with("+acl"));
        let keyspace = keyspace(Spelling::Bare);
        assert!(!has(&daemon_rules(&keyspace, false)));
        assert!(has(&daemon_rules(&keyspace, true)));
    }
}
