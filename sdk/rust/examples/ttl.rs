//! Deletes finished Jobs after a time to live.
//!
//! In: Jobs; config `{"seconds": 3600}`, or the annotation below on a Job, which takes precedence. Out: deletions,
//! each with an Event. Invariant: a Job that is not finished, or has another uid than the evaluated one, is never
//! deleted; Kubernetes itself deletes a Job with spec.ttlSecondsAfterFinished.

use trellis_controller::{
    controller, host, kube, parse_number, parse_time, Controller, Error, ErrorKind, Outcome, Request, Start, Value,
};

const SECONDS: &str = "examples.trellis.dev/ttl-seconds";
const LONGEST: i64 = 1_000_000_000;

struct Ttl {
    /// `None`: only Jobs with the annotation.
    configured: Option<i64>,
}

impl Controller for Ttl {
    fn start(start: &Start) -> Result<Self, Error> {
        let configured = match start.config.get("seconds") {
            None => None,
            Some(seconds) => match seconds.as_i64() {
                Some(seconds) if (0..=LONGEST).contains(&seconds) => Some(seconds),
                _ => return Err("config.seconds is no whole number of seconds from 0 to 1000000000".into()),
            },
        };
        Ok(Ttl { configured })
    }

    fn reconcile(&mut self, request: &Request) -> Result<Outcome, Error> {
        let job = match &request.object {
            Some(job) if job["metadata"]["deletionTimestamp"].is_null() => job,
            _ => return Ok(Outcome::Done),
        };
        if !job["spec"]["ttlSecondsAfterFinished"].is_null() {
            return Ok(Outcome::Done);
        }
        let (lives, finished) = match (self.time_to_live(job)?, finished_at(job)) {
            (Some(lives), Some(finished)) => (lives, finished),
            _ => return Ok(Outcome::Done),
        };
        let now = host::now() / 1_000_000_000;
        if now < finished + lives {
            return Ok(Outcome::RequeueAfter((finished + lives - now) as u64));
        }
        let this_one = kube::DeleteOptions {
            uid: job["metadata"]["uid"].as_str(),
            propagation_policy: Some("Background"),
            ..Default::default()
        };
        match kube::delete(&request.key, this_one) {
            Ok(()) => tell(job, now - finished),
            // Conflict: a new Job has this name, and gets its own call.
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Conflict) => {}
            Err(error) => return Err(error),
        }
        Ok(Outcome::Done)
    }
}

impl Ttl {
    /// Returns the seconds from the end to the deletion; `None`: never delete.
    fn time_to_live(&self, job: &Value) -> Result<Option<i64>, Error> {
        let text = match job["metadata"]["annotations"][SECONDS].as_str() {
            Some(text) => text,
            None => return Ok(self.configured),
        };
        match parse_number(text) {
            Some(seconds) if seconds <= LONGEST => Ok(Some(seconds)),
            _ => {
                Err(format!("the annotation {} is no whole number of seconds from 0 to {}: {}", SECONDS, LONGEST, text)
                    .into())
            }
        }
    }
}

/// Returns the end of the Job in seconds since 1970; `None` if it has not finished.
fn finished_at(job: &Value) -> Option<i64> {
    let is_end = |condition: &&Value| {
        condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
    };
    let end = job["status"]["conditions"].as_array()?.iter().find(is_end)?;
    parse_time(end["lastTransitionTime"].as_str()?)
}

fn tell(job: &Value, age: i64) {
    let message = format!("deleted {} s after it finished", age);
    // The Job was deleted: a retry would record an Event about nothing.
    if let Err(error) = kube::event(job, kube::EventType::Normal, "TimeToLiveExpired", &message) {
        host::log(host::Level::Warning, &error.to_string());
    }
}

controller!(Ttl);
