//! The check must find what it is there to find.

use super::*;

fn record(thread: u64, counter: u64, count: u64) -> Vec<Cell> {
    (0..count).map(|index| Cell { run: 7, thread, counter, index, count }).collect()
}

fn follow(cells: &[Cell]) -> Result<bool, String> {
    let mut follower = Follower::default();
    cells.iter().try_for_each(|cell| follower.take(*cell))?;
    Ok(follower.is_at_record_end())
}

#[test]
fn a_cell_is_read_back_and_a_wrong_bit_is_seen() {
    let cell = Cell { run: 1, thread: 2, counter: 3, index: 4, count: 5 };
    let mut bytes = Vec::new();
    cell.write_to(&mut bytes);
    assert_eq!(bytes.len(), CELL_LEN_BYTES);
    assert_eq!(Cell::read_from(&bytes), Some(cell));
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Cell::read_from(&bytes), None, "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(Cell::read_from(&bytes[1..]), None);
    assert_eq!(Cell::read_from(&[0; CELL_LEN_BYTES]), None);
}

#[test]
fn records_of_several_threads_are_followed() {
    let stream = [record(0, 0, 3), record(1, 5, 1), record(0, 1, 2), record(1, 6, 2)].concat();
    assert_eq!(follow(&stream), Ok(true));
    assert_eq!(follow(&stream[1..]), Ok(true), "may start inside a record");
    assert_eq!(follow(&stream[..stream.len() - 1]), Ok(false), "ends inside a record");
}

#[test]
fn missing_repeated_and_mixed_cells_are_found() {
    let whole = [record(0, 0, 3), record(0, 1, 3), record(0, 2, 1)].concat();
    let without = |at: usize| [&whole[..at], &whole[at + 1..]].concat();
    assert!(follow(&without(1)).is_err(), "a cell is missing");
    assert!(follow(&without(3)).is_err(), "the first cell of a record is missing");
    assert!(follow(&[&whole[..3], &whole[6..]].concat()).is_err(), "a record is missing");
    assert!(follow(&[&whole[..3], &whole[..]].concat()).is_err(), "a record is there twice");
}
