//! Messages of v2's protocol (`wasmcloud.runtime.v2`) in proto3 JSON, as recorded from the real host.
//!
//! In: payloads of requests, in lowerCamelCase or snake_case. Out: payloads of replies: defaults are omitted, 64-bit
//! integers are strings, enum values have names. Invariant: an unknown field makes a request unreadable.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct StartRequest {
    pub workload: Option<Workload>,
    #[serde(alias = "workload_id")]
    pub workload_id: String,
}

/// The request of `workload.status` and of `workload.stop`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct IdRequest {
    #[serde(alias = "workload_id")]
    pub workload_id: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Workload {
    pub namespace: String,
    pub name: String,
    pub annotations: HashMap<String, String>,
    pub service: Option<Service>,
    #[serde(alias = "wit_world")]
    pub wit_world: WitWorld,
    pub volumes: Vec<Volume>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct WitWorld {
    pub components: Vec<Component>,
    #[serde(alias = "host_interfaces")]
    pub host_interfaces: Vec<WitInterface>,
}

/// A component; the runtime has no use for the policy of pulls and the limit of concurrency.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Component {
    pub image: String,
    #[serde(alias = "local_resources")]
    pub local_resources: LocalResources,
    #[serde(alias = "pool_size", deserialize_with = "integer")]
    pub pool_size: i32,
    #[serde(alias = "max_invocations", deserialize_with = "integer")]
    pub max_invocations: i32,
    #[serde(alias = "image_pull_secret")]
    pub image_pull_secret: Option<PullSecret>,
    pub name: String,
    #[allow(dead_code)]
    #[serde(alias = "image_pull_policy")]
    pub image_pull_policy: PullPolicy,
    #[allow(dead_code)]
    #[serde(alias = "max_concurrency", deserialize_with = "integer")]
    pub max_concurrency: i32,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Service {
    pub image: String,
    #[serde(alias = "local_resources")]
    pub local_resources: LocalResources,
    #[serde(alias = "max_restarts", deserialize_with = "integer")]
    pub max_restarts: u64,
    #[serde(alias = "image_pull_secret")]
    pub image_pull_secret: Option<PullSecret>,
    #[allow(dead_code)]
    #[serde(alias = "image_pull_policy")]
    pub image_pull_policy: PullPolicy,
}

/// Credentials of a registry; without `Debug`, so that no log shows them.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PullSecret {
    pub username: String,
    pub password: String,
}

#[derive(Default, Deserialize)]
pub enum PullPolicy {
    #[default]
    #[serde(rename = "IMAGE_PULL_POLICY_UNSPECIFIED")]
    Unspecified,
    #[serde(rename = "IMAGE_PULL_POLICY_ALWAYS")]
    Always,
    #[serde(rename = "IMAGE_PULL_POLICY_IF_NOT_PRESENT")]
    IfNotPresent,
    #[serde(rename = "IMAGE_PULL_POLICY_NEVER")]
    Never,
}

/// Resources of a component; the runtime enforces no rule on name look-ups and loopback ports.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct LocalResources {
    #[serde(alias = "memory_limit_mb", deserialize_with = "integer")]
    pub memory_limit_mb: i32,
    #[serde(alias = "cpu_limit", deserialize_with = "integer")]
    pub cpu_limit: i32,
    pub config: HashMap<String, String>,
    pub environment: HashMap<String, String>,
    #[serde(alias = "volume_mounts")]
    pub volume_mounts: Vec<VolumeMount>,
    #[serde(alias = "allowed_hosts")]
    pub allowed_hosts: Vec<String>,
    #[allow(dead_code)]
    #[serde(alias = "allowed_ip_name_lookups")]
    pub allowed_ip_name_lookups: Vec<String>,
    #[allow(dead_code)]
    #[serde(alias = "allowed_host_loopback_ports")]
    pub allowed_host_loopback_ports: Vec<serde_json::Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct VolumeMount {
    pub name: String,
    #[serde(alias = "mount_path")]
    pub mount_path: String,
    #[serde(alias = "read_only")]
    pub read_only: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Volume {
    pub name: String,
    #[serde(alias = "host_path")]
    pub host_path: Option<HostPath>,
    #[allow(dead_code)]
    #[serde(alias = "empty_dir")]
    pub empty_dir: Option<EmptyDir>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct HostPath {
    #[serde(alias = "local_path")]
    pub local_path: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmptyDir {}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct WitInterface {
    pub namespace: String,
    pub package: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    #[serde(skip_serializing_if = "HashMap::is_empty")]
    pub config: HashMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

#[derive(Serialize)]
pub enum State {
    #[serde(rename = "WORKLOAD_STATE_STARTING")]
    Starting,
    #[serde(rename = "WORKLOAD_STATE_RUNNING")]
    Running,
    #[serde(rename = "WORKLOAD_STATE_COMPLETED")]
    Completed,
    #[serde(rename = "WORKLOAD_STATE_STOPPING")]
    Stopping,
    #[serde(rename = "WORKLOAD_STATE_ERROR")]
    Error,
    #[serde(rename = "WORKLOAD_STATE_NOT_FOUND")]
    NotFound,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub workload_id: String,
    pub workload_state: State,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The reply to `workload.start`, `workload.status` and `workload.stop`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReply {
    pub workload_status: Status,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    pub id: String,
    pub hostname: String,
    pub friendly_name: String,
    pub version: String,
    pub labels: BTreeMap<String, String>,
    pub started_at: String,
    pub os_arch: String,
    pub os_name: String,
    pub os_kernel: String,
    #[serde(skip_serializing_if = "is_default")]
    pub system_cpu_usage: f32,
    #[serde(serialize_with = "text", skip_serializing_if = "is_default")]
    pub system_memory_total: u64,
    #[serde(serialize_with = "text", skip_serializing_if = "is_default")]
    pub system_memory_free: u64,
    #[serde(serialize_with = "text", skip_serializing_if = "is_default")]
    pub component_count: u64,
    #[serde(serialize_with = "text", skip_serializing_if = "is_default")]
    pub workload_count: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub imports: Vec<WitInterface>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<WitInterface>,
    pub http_port: u16,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub environment: String,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn text<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}

/// Read an integer, which proto3 JSON allows as a number and as a string.
fn integer<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + FromStr<Err: Display>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form<T> {
        Number(T),
        Text(String),
    }
    match Form::deserialize(deserializer)? {
        Form::Number(number) => Ok(number),
        Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}
