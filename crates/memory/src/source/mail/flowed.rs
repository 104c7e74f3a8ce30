//! Text of the format "flowed" (RFC 3676), whose lines go on where they end with a blank.

/// Joins the lines of paragraphs again. With `deletes_space`, the blank at the end of a line is no part of the text.
pub fn unwrapped(text: &str, deletes_space: bool) -> String {
    let mut unwrapped = String::with_capacity(text.len());
    // The depth of the quotation in which a line goes on.
    let mut open: Option<usize> = None;
    for line in text.lines() {
        let depth = line.bytes().take_while(|&byte| byte == b'>').count();
        let content = &line[depth..];
        let content = content.strip_prefix(' ').unwrap_or(content);
        let is_signature = content == "-- ";
        if open.take_if(|open| *open == depth && !is_signature).is_none() {
            if !unwrapped.is_empty() {
                unwrapped.push('\n');
            }
            unwrapped.push_str(&line[..depth]);
            if depth > 0 && !content.is_empty() {
                unwrapped.push(' ');
            }
        }
        let goes_on = content.ends_with(' ') && !is_signature;
        unwrapped.push_str(match goes_on && deletes_space {
            true => &content[..content.len() - 1],
            false => content,
        });
        open = goes_on.then_some(depth);
    }
    unwrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_on_behind_a_blank() {
        let text = "Bees hum \nall day.\n\n> Do \n> they? \n>> Why?\n From Paris\n-- \nAda\n";
        assert_eq!(
            unwrapped(text, false),
            "Bees hum all day.\n\n> Do they? \n>> Why?\nFrom Paris\n-- \nAda"
        );
        assert_eq!(unwrapped("蜂が \n鳴く\n", true), "蜂が鳴く");
    }
}
