//! Calls on one connection.

use super::{ConnectionId, ConnectionState, Engine};
use crate::connection::{Connection, Finish, Keepalive, State};
use crate::error::CallError;
use crate::time::Micros;

impl Engine {
    fn known(&self, id: ConnectionId) -> Result<&Connection, CallError> {
        let connection = self.connections.get(id.index).ok_or(CallError::Stale)?;
        let is_it = self.connections.generation(id.index) == Some(id.generation);
        if is_it && connection.is_accepted && !connection.is_orphan {
            Ok(connection)
        } else {
            Err(CallError::Stale)
        }
    }

    /// Queues bytes for sending and returns how many were accepted, at least one unless `data` is empty.
    ///
    /// # Errors
    /// [`CallError::WouldBlock`] if there is no room, [`CallError::Ended`] after [`Engine::shutdown_write`], and the
    /// error of a failed connection.
    pub fn send(&mut self, now: Micros, id: ConnectionId, data: &[u8]) -> Result<usize, CallError> {
        let connection = self.known(id)?;
        if let Some(error) = connection.error {
            return Err(error.into());
        }
        if connection.finish() != Finish::Open {
            return Err(CallError::Ended);
        }
        let count =
            self.with(now, id.index, |connection, context| connection.send(context, data)).unwrap_or(0);
        if !self.has_memory(id.index) {
            self.waiting.push(id.index);
        }
        self.settle(now, id.index);
        if count == 0 && !data.is_empty() { Err(CallError::WouldBlock) } else { Ok(count) }
    }

    /// Reads received bytes; 0 at the end of the peer's data, or if `out` is empty.
    ///
    /// # Errors
    /// [`CallError::WouldBlock`] if no data has arrived yet, and the error of a failed connection.
    pub fn read(&mut self, now: Micros, id: ConnectionId, out: &mut [u8]) -> Result<usize, CallError> {
        let connection = self.known(id)?;
        if let Some(error) = connection.error {
            return Err(error.into());
        }
        if connection.readable() == 0 && !out.is_empty() {
            let has_ended = connection.peer_has_ended() || connection.reads_no_more();
            return if has_ended { Ok(0) } else { Err(CallError::WouldBlock) };
        }
        let count =
            self.with(now, id.index, |connection, context| connection.read(context, out)).unwrap_or(0);
        self.settle(now, id.index);
        self.tell_who_waits_for_memory();
        Ok(count)
    }

    /// Ends sending: the peer sees the end after the bytes sent so far.
    ///
    /// # Errors
    /// [`CallError::Stale`], or the error of a failed connection.
    pub fn shutdown_write(&mut self, now: Micros, id: ConnectionId) -> Result<(), CallError> {
        if let Some(error) = self.known(id)?.error {
            return Err(error.into());
        }
        self.with(now, id.index, |connection, _| connection.end_sending());
        self.settle(now, id.index);
        Ok(())
    }

    /// Ends reading: received and future data is discarded, and [`Engine::read`] returns the end.
    ///
    /// # Errors
    /// [`CallError::Stale`], or the error of a failed connection.
    pub fn shutdown_read(&mut self, now: Micros, id: ConnectionId) -> Result<(), CallError> {
        if let Some(error) = self.known(id)?.error {
            return Err(error.into());
        }
        self.with(now, id.index, Connection::end_reading_in);
        self.mark_changed(id.index);
        self.settle(now, id.index);
        Ok(())
    }

    /// Closes a connection: the id is stale afterwards. Bytes accepted so far still reach the peer, followed by the
    /// end. If received data was not read, the peer gets a reset instead (RFC 9293, 3.10.4; RFC 2525, 2.17).
    ///
    /// # Errors
    /// [`CallError::Stale`].
    pub fn close(&mut self, now: Micros, id: ConnectionId) -> Result<(), CallError> {
        let connection = self.known(id)?;
        if connection.readable() > 0 && connection.error.is_none() {
            return self.reset(now, id);
        }
        let timeout = self.config.orphan_timeout.0;
        self.with(now, id.index, |connection, _| {
            connection.end_sending();
            connection.is_orphan = true;
            if connection.state() == State::FinWait2 {
                connection.lives_until = now.after(timeout);
            }
        });
        self.settle(now, id.index);
        Ok(())
    }

    /// Aborts a connection: the peer gets a reset, the id is stale afterwards.
    ///
    /// # Errors
    /// [`CallError::Stale`].
    pub fn reset(&mut self, now: Micros, id: ConnectionId) -> Result<(), CallError> {
        self.known(id)?;
        self.reset_connection(now, id.index);
        Ok(())
    }

    /// Sets whether small segments are sent at once. With `false`, the initial value, they wait until data in flight is
    /// acknowledged.
    ///
    /// # Errors
    /// [`CallError::Stale`].
    pub fn set_nodelay(&mut self, now: Micros, id: ConnectionId, no_delay: bool) -> Result<(), CallError> {
        self.known(id)?;
        self.with(now, id.index, |connection, _| connection.set_no_delay(no_delay));
        self.settle(now, id.index);
        Ok(())
    }

    /// Sets the keepalive probes to an idle peer; initially there are none.
    ///
    /// # Errors
    /// [`CallError::Stale`].
    pub fn set_keepalive(
        &mut self,
        now: Micros,
        id: ConnectionId,
        keepalive: Option<Keepalive>,
    ) -> Result<(), CallError> {
        self.known(id)?;
        self.with(now, id.index, |connection, _| connection.set_keepalive(keepalive));
        self.settle(now, id.index);
        Ok(())
    }

    /// Sets the longest time that data may stay unacknowledged (RFC 5482); without one, retransmissions are counted.
    ///
    /// # Errors
    /// [`CallError::Stale`].
    pub fn set_user_timeout(
        &mut self,
        now: Micros,
        id: ConnectionId,
        timeout: Option<Micros>,
    ) -> Result<(), CallError> {
        self.known(id)?;
        self.with(now, id.index, |connection, _| connection.set_user_timeout(timeout));
        self.settle(now, id.index);
        Ok(())
    }

    /// State of a connection.
    ///
    /// # Errors
    /// [`CallError::Stale`].
    pub fn state(&self, id: ConnectionId) -> Result<ConnectionState, CallError> {
        let connection = self.known(id)?;
        Ok(ConnectionState {
            readable_bytes: connection.readable(),
            writable_bytes: connection.writable(&self.config, &self.pool),
            unsent_bytes: connection.unsent(),
            peer_closed: connection.peer_has_ended(),
            error: connection.error,
        })
    }
}
