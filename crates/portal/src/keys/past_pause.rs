//! The page of a pause, which stays after the key is resumed.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;

use crate::error::PortalError;
use crate::keys::detail::{actor_name, parse_key_id};
use crate::keys::list::pause_view;
use crate::page::{CurrentMember, render_page};
use crate::state::Portal;
use crate::time;
use crate::view::frame::Tab;
use crate::view::keys::PausePage;

pub(crate) async fn show(
    State(portal): State<Arc<Portal>>,
    Path((id, burst_epoch)): Path<(String, String)>,
    member: CurrentMember,
) -> Result<Response, PortalError> {
    let id = parse_key_id(&id)?;
    let burst_epoch = burst_epoch.parse().map_err(|_| PortalError::NotFound)?;
    let pause = portal.store.keys().find_pause(member.account.id, id, burst_epoch).await?;
    let pause = pause.ok_or(PortalError::NotFound)?;
    let title = format!("Pause of {}", pause.key_name);
    Ok(render_page(&PausePage {
        frame: member.frame(&portal, &title, Tab::Keys),
        key_id: id.to_string(),
        key_name: pause.key_name,
        pause: pause_view(&pause.evidence),
        is_current: pause.is_current,
        resumed: pause.resumed.map(|(at_s, actor)| (time::format_second(at_s), actor_name(&actor))),
    }))
}
